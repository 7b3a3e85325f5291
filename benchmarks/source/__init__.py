"""How fast Spark reads a topic: through our source, and through its own Kafka connector.

Takes: a broker of ours, Spark, and the jars that `make peers` brings.
Gives: rows per second of both on the same topics, and what they read compared.
May import: everything; nothing imports it.
Start reading at: `benchmarks.source.__main__`.
"""
