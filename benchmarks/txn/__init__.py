"""Transactions and compaction beside Apache Kafka, in one run on one machine.

Takes: the peer's jars (`make peers`) and an idle machine.
Gives: a table for people and, as the last line, its rows as JSON.
May import: everything; nothing imports it.
Start reading at: `__main__`, the list of what is measured.
"""
