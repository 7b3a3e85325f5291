"""The one place where state lives: operators that step over Arrow tables, bucket by bucket.

Takes: rows as Arrow tables, with their keys as canonical bytes, and the state of a bucket.
Gives: the next state, in chunks named by their content, and the rows that come out.
May import: `headwater.streams.compiled`, `headwater.base`, pyarrow, numpy; Spark in `plan` and
`processor` alone.
Start reading at: `headwater.streams.kernel.operator`, then `headwater.streams.kernel.table`.
"""
