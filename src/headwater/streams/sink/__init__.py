"""How Spark writes topics: a batch appears whole or not at all, once.

Takes: rows with the columns of Spark's own Kafka sink.
Gives: one transaction for each batch, made by the driver.
May import: `headwater.delivery.client`, `headwater.base` and the options of `headwater.streams`.
Start reading at: `headwater.streams.sink.commit`, the driver's protocol.
"""
