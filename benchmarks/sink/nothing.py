"""A sink in Python that does nothing: what Spark itself takes for one.

This file alone decides what such a sink is: it takes all rows, says how many, and commits nothing.
It stands in a module of its own because Spark's workers import it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NOTHING = "headwater_nothing"


@dataclass
class _Counted(WriterCommitMessage):
    rows: int


class _NothingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        return _Counted(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        pass


class NothingSource(DataSource):
    """Answers `format("headwater_nothing")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NOTHING

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's signature
        """Return what answers `df.writeStream`."""
        return _NothingWriter()
