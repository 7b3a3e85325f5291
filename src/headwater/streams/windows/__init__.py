"""What is computed over stretches of time: windows, and the aggregates of the rows in them.

Takes: rows as the kernel's operators see them, with their times, and the watermark.
Gives: operators for tumbling, hopping, session and sliding windows, and the aggregates they need.
May import: `headwater.streams.kernel`, `headwater.streams.compiled`, pyarrow, numpy; in `plan`
alone Spark, and `headwater.streams.joins.table_changes`.
Start reading at: `headwater.streams.windows.aligned`, then `headwater.streams.windows.aggregates`.
"""
