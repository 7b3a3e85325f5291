"""Style as a test: what a linter does not know about this repository.

Takes: the text of every file that could be committed.
Gives: a failing test per kind of offence, each naming file and line.
May import: the standard library and pytest; nothing of Headwater, which may not even import.
Start reading at: `tests.tidy.rules`.
"""
