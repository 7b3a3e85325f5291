"""What the records of internal topics hold: group, offset, transaction and share state.

Takes: keys and values as objects of the classes in `records`, or their bytes.
Gives: the other of the two, in Kafka's own schemas.
May import: `headwater.base`.
Start reading at: `headwater.delivery.broker.formats.envelope`; then `records.table`.
"""
