"""How long records are on their way through a pipeline, and what a trigger interval does to that.

Takes: a broker of ours, Apache Kafka, Spark, and the jars that `make peers` brings.
Gives: milliseconds from send to receipt, rows per second when there is always more, and a picture.
May import: everything; nothing imports it.
Start reading at: `benchmarks.latency.__main__`.
"""
