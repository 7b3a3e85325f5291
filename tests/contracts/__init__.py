"""What a Kafka broker answers, asked of Headwater and of Apache Kafka 4.3 with the same words.

Every test runs twice, against a broker of ours and against Apache Kafka, and asserts the same
error codes, fields and edges of both. Where the two differ on purpose, the difference has a name
and a reason in `differences`, and a row in `skipped.md`; nothing is left out in silence.

Takes: the two brokers, and requests in chosen versions.
Gives: tests.
May import: headwater's client, messages and records; tests.peers.
Start reading at: `tests.contracts.kit`.
"""
