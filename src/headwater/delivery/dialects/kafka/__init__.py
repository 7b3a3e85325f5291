"""Kafka's requests, one file per API, numbered as in the protocol.

Takes: decoded Kafka requests, each inside a `Call`.
Gives: Kafka responses, now or later, exactly one per call.
May import: `headwater.delivery.broker`, `headwater.delivery.wire.kafka` and what they may import.
Start reading at: `headwater.delivery.dialects.kafka.registry`, then `api_00_produce`.
"""
