"""Nexmark's queries as streams: ours, stock Spark's and Flink's, on the same topic.

Takes: the events, queries and streams of `examples.nexmark`, the broker, the peers of `make peers`.
Gives: events per second of each query and side.
May import: anything of the project, and pyspark; PyFlink stays in a process of its own.
Start reading at: `benchmarks.nexmark.__main__`.
"""
