"""The name under which Spark looks for `format("headwater")`.

Spark loads every package whose name begins with `pyspark_` and takes its `DefaultSource`; there is
nothing to register.

Takes: nothing.
Gives: `DefaultSource`.
May import: `headwater.streams.data_source`.
Start reading at: `headwater.streams.data_source`.
"""

from headwater.streams.data_source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
