"""How Spark reads topics.

Takes: options in the words of Spark's own Kafka source, and offsets from Spark's checkpoint.
Gives: the ranges of a batch and their records as Arrow.
May import: `headwater.delivery.client`, `headwater.base` and the options of `headwater.streams`.
Start reading at: `headwater.streams.source.stream_reader`.
"""
