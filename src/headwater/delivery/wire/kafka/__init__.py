"""The Kafka protocol: frames to messages and back.

Takes: frames as bytes; messages as objects of the classes in `messages`.
Gives: messages, and frames as lists of parts in which records stay what they were.
May import: `headwater.base`.
Start reading at: `headwater.delivery.wire.kafka.framing`; then `apis`, then `messages.table`.
"""
