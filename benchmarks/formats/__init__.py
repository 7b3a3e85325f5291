"""How fast values are decoded: by `hf.json`, `hf.avro`, `hf.protobuf`, and by the plain way.

Takes: Spark, and values that our own encoders have written.
Gives: rows per second of both, and what they decoded compared.
May import: everything; nothing imports it.
Start reading at: `benchmarks.formats.__main__`.
"""
