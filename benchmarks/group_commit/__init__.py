"""Measure ways to make appends durable beside a busy event loop.

Takes: a directory on the disk to be measured.
Gives: a table of commit strategies, and its rows as one JSON object on the last line.
May import: the standard library and `headwater.delivery.server.committer`.
Start reading at: `__main__.py` (what is measured), then `strategies.py` (what is compared).
"""
