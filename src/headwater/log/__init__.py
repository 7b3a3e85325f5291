"""Where the data rests: partitions of segments in Kafka's own file format.

Takes: finished record batches, a disk and a clock.
Gives: offsets, extents of files to read from, and the promise of what survives a crash.
May import: `headwater.base`.
Start reading at: `headwater.log.partition`, one log; `headwater.log.store` is the house of all.
"""
