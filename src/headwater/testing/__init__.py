"""What other projects need to test against Kafka without Docker or a JVM.

Takes: nothing but a temporary directory.
Gives: an in-process broker, a pytest plugin, doubles of disk, clock and dice.
May import: every room.
Start reading at: `headwater.testing.broker`.
"""
