"""Headwater: a durable, partitioned log that speaks the Kafka protocol.

This file alone decides what `import headwater` offers. It must not import any room when it is
loaded: names are resolved on first use.

Takes: nothing.
Gives: the version.
May import: every room, but only on first use of a name.
Start reading at: `headwater.base`, where the data's way begins.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
