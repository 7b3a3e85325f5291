"""How bytes become columns, and what becomes of those that do not.

Takes: DataFrames with the columns of the source, and a schema.
Gives: DataFrames with columns of their own; records that cannot be decoded go to a topic.
May import: `headwater.delivery.client`, `headwater.base` and the sink.
Start reading at: `headwater.streams.formats.json`.
"""
