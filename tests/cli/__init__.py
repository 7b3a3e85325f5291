"""The command line: every command, its promises, and the processes it starts.

Takes: brokers of ours and Apache Kafka.
Gives: tests, and `runner`, which calls the program within this process.
May import: headwater, tests.peers.
Start reading at: `tests.cli.test_contract`.
"""
