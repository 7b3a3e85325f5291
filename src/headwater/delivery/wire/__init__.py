"""Bytes to messages and back, without any input or output of its own.

Takes: frames as bytes, messages as objects.
Gives: messages as objects, frames as bytes.
May import: `headwater.base`; no sibling wire format, no socket, clock or dice.
Start reading at: `headwater.delivery.wire.kafka`.
"""
