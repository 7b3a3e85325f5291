"""The batch reader: `spark.read.format("headwater")`.

This file alone decides when a batch read fixes what it covers: once, when Spark plans it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.streams.connecting import connect
from headwater.streams.errors import hints_shown
from headwater.streams.options import SourceOptions
from headwater.streams.source.fetching import read_range
from headwater.streams.source.positions import Positions
from headwater.streams.source.stream_reader import RangePartition, split_as_told

if TYPE_CHECKING:
    import pyarrow as pa


class HeadwaterBatchReader(DataSourceReader):
    """Reads topics from one place to another, once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads."""
        with hints_shown(), connect(self._options.bootstrap, self._options.client) as cluster:
            ranges = Positions(cluster, self._options).batch()
            return [RangePartition(each) for each in split_as_told(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Return the rows of one range; Spark hands in another partition where there is none."""
        with hints_shown():
            if isinstance(partition, RangePartition):
                yield from read_range(self._options, partition.range)
