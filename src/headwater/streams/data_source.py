"""What Spark finds under the name `headwater`.

This file alone decides which class answers which question of Spark's. It is imported by every
Python worker, and by each process that plans or commits, so it loads nothing heavy: readers and
writers are imported by those who need them, numba and pyarrow where rows are touched.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from headwater.streams.errors import OptionError, hints_shown
from headwater.streams.options import (
    check_source_options,
    includes_headers,
    is_time_role,
    names_a_source,
    source_options,
)
from headwater.streams.schema import check_columns, source_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class HeadwaterDataSource(DataSource):
    """Topics of any broker that speaks Kafka's protocol, as a source and a sink."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "headwater"

    def schema(self) -> str:
        """Return the columns of a source."""
        with hints_shown():
            if is_time_role(self.options):
                from headwater.streams.time.reader_options import TIME_SCHEMA  # noqa: PLC0415

                return TIME_SCHEMA
            if names_a_source(self.options):
                # Here a wrong option fails `load()` itself, not the query that comes of it later.
                check_source_options(self.options)
            return source_schema(headers=includes_headers(self.options))

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return what answers `spark.read`."""
        from headwater.streams.source.batch_reader import (  # noqa: PLC0415
            HeadwaterBatchReader,
        )

        with hints_shown():
            options = source_options(self.options, streaming=False)
            _check(schema, headers=options.include_headers)
            return HeadwaterBatchReader(options)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Return what answers `spark.readStream`."""
        if is_time_role(self.options):
            return self._time_reader()
        from headwater.streams.source.stream_reader import (  # noqa: PLC0415
            HeadwaterStreamReader,
        )

        with hints_shown():
            options = source_options(self.options, streaming=True)
            _check(schema, headers=options.include_headers)
            return HeadwaterStreamReader(options)

    def _time_reader(self) -> "DataSourceStreamReader":
        from headwater.streams.time.reader_options import read_time_options  # noqa: PLC0415
        from headwater.streams.time.time_reader import TimeReader  # noqa: PLC0415

        with hints_shown():
            return TimeReader(read_time_options(self.options))

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":  # noqa: ARG002
        """Return what answers `df.write`."""
        from headwater.streams.sink.batch_writer import (  # noqa: PLC0415
            HeadwaterBatchWriter,
        )
        from headwater.streams.sink.options import sink_options  # noqa: PLC0415

        with hints_shown():
            if overwrite:
                raise OptionError(
                    "a topic cannot be overwritten", hint='write with .mode("append")'
                )
            return HeadwaterBatchWriter(sink_options(self.options))

    def streamWriter(  # noqa: N802
        self,
        schema: "StructType",  # noqa: ARG002 - tasks see the columns themselves
        overwrite: bool,  # noqa: ARG002 - complete mode appends its whole result, as with Kafka
    ) -> "DataSourceStreamWriter":
        """Return what answers `df.writeStream`."""
        from headwater.streams.sink.options import sink_options  # noqa: PLC0415
        from headwater.streams.sink.writer import HeadwaterStreamWriter  # noqa: PLC0415

        with hints_shown():
            return HeadwaterStreamWriter(sink_options(self.options))


def _check(schema: "StructType", *, headers: bool) -> None:
    check_columns(
        [(field.name, field.dataType.simpleString()) for field in schema.fields], headers=headers
    )
