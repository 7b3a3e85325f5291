"""How a log keeps the latest record of each key and lets go of the rest.

Takes: closed segments of a partition, and what is known of its producers and transactions.
Gives: fewer and smaller segments with the same offsets, put in place so that a crash finds either.
May import: `headwater.base` and the rest of `headwater.log`, but not its store.
Start reading at: `headwater.log.compaction.cleaner`, one pass; `compaction` says which log is next.
"""
