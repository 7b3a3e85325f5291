"""Who hands the data over: protocols, the broker's decisions, client and server.

Takes: connections of foreign clients, or the address of a broker.
Gives: a running broker, and a small client that works against any Kafka.
May import: `headwater.log`, `headwater.base`.
Start reading at: `headwater.delivery.broker`, where the decisions are made.
"""
