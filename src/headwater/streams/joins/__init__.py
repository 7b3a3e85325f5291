"""Joins: rows of two inputs that belong together, found while both are moving.

Takes: rows of a left and a right input, by their key, and the watermark.
Gives: the left's values beside the right's, as changes: what appears and what is taken back.
May import: `headwater.streams.kernel`, `headwater.streams.compiled`, `headwater.base`, pyarrow,
numpy; in `plan`, `sides`, `table_changes` and `table_source` also Spark and the rest of
`headwater.streams`.
Start reading at: `headwater.streams.joins.plan`, where joins are asked for.
"""
