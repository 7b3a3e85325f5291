"""Kafka's record batch, version 2, as bytes and as records.

Takes: bytes of batches, or records with keys, values, headers and timestamps.
Gives: checked batch headers, decoded records, encoded batches.
May import: crc and compression packages; no clock, socket, thread or dice.
Start reading at: `headwater.base.record.batch`.
"""
