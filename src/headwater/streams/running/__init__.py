"""How pipelines are named, started, watched and stopped.

Takes: DataFrames and where their rows go.
Gives: running queries with checkpoints, and what can be known of them.
May import: the other packages of `headwater.streams`.
Start reading at: `headwater.streams.running.pipeline`.
"""
