"""A small Kafka client that works against Headwater and Apache Kafka alike.

Takes: the address of a broker.
Gives: a producer, a consumer, a member of a group, an admin; finished batches in and out.
May import: `headwater.delivery.wire`, `headwater.base`; never the log or the broker.
Start reading at: `headwater.delivery.client.consumer`.
"""
