"""How fast Spark writes a topic: through our sink, exactly once, and through its own Kafka sink.

Takes: a broker of ours, Spark, and the jars that `make peers` brings.
Gives: rows per second and milliseconds per batch of both, and what they wrote compared.
May import: everything; nothing imports it.
Start reading at: `benchmarks.sink.__main__`.
"""
