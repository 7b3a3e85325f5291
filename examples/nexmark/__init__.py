"""Nexmark, the auction benchmark of stream processors: its events and its queries q0 to q22.

Takes: a seed, and how many events.
Gives: people, auctions and bids as Arrow tables or as records of a topic; every query as SQL,
    and as a stream.
May import: numpy, numba, pyarrow and Headwater; Spark in `streaming` alone, and no database.
Start reading at: `examples.nexmark.generator`.
"""
