"""How Spark writes topics: a batch appears whole or not at all, once.

Takes: rows with the columns of Spark's own Kafka sink.
Gives: one transaction for each batch, made by the driver.
May import: `headwater.delivery.client`, `headwater.base`, and from `headwater.streams` its options
    and what a dead letter is.
Start reading at: `headwater.streams.sink.commit`, the driver's protocol.
"""
