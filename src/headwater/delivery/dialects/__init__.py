"""Each protocol's requests translated into the broker's decisions and back.

Takes: decoded messages of one wire format.
Gives: answers in the same format.
May import: `headwater.delivery.broker`, `headwater.delivery.wire` and what they may import.
Start reading at: `headwater.delivery.dialects.kafka`.
"""
