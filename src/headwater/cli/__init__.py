"""The command line: every room put together for one person at a terminal.

Takes: arguments, the environment, standard input.
Gives: `main`, the program `headwater`.
May import: every room; each command loads only what it needs.
Start reading at: `headwater.cli.program`.
"""

from headwater.cli.program import main

__all__ = ["main"]
