"""What a broker decides: topics, produce, fetch, groups, offsets.

Takes: requests already freed of their wire format, the log, a clock and dice.
Gives: decisions and their results, with Kafka's error codes.
May import: `headwater.log`, `headwater.base`; never a wire format.
Start reading at: `headwater.delivery.broker.topics`.
"""
