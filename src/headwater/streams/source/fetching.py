"""How a task reads its range.

This file alone decides how fetches follow each other up to the end of a range, and what becomes of
records that were there when the range was planned and are not when it is read. It runs in Spark's
workers; numba and pyarrow are loaded by what it calls, when the first row is wanted.
"""

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.uuids import uuid_from_text
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader, Fetched
from headwater.delivery.client.cluster import Cluster, is_retriable_or_broken
from headwater.delivery.client.errors import TopicReplacedError
from headwater.streams.connecting import connect
from headwater.streams.errors import DataLossError, TopicRecreatedError
from headwater.streams.options import SourceOptions
from headwater.streams.source.ranges import Range, fell_off, log_shrank

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)
# A range of few records is not worth a fetch of megabytes; a KiB is a large record.
_GUESSED_RECORD_BYTES = 1 << 10
_FETCH_BYTES_MIN = 64 << 10


def read_range(options: SourceOptions, wanted: Range) -> Iterator["pa.RecordBatch"]:
    """Return the records of a range as Arrow.

    Raises:
        DataLossError: Records of it are gone, and the query is to fail then.
        BrokerUnreachableError: No broker answers within the client's patience.
    """
    with connect(options.bootstrap, options.client) as cluster:
        yield from _Reading(cluster, options, wanted).batches()


class _Reading:
    """One range on its way."""

    def __init__(self, cluster: Cluster, options: SourceOptions, wanted: Range) -> None:
        self._cluster = cluster
        self._options = options
        self._wanted = wanted
        self._place = (wanted.topic, wanted.partition)
        self._name = f"{wanted.topic}-{wanted.partition}"

    def batches(self) -> Iterator["pa.RecordBatch"]:
        from headwater.streams.source.decode import Decoder  # noqa: PLC0415 - loads numba

        wanted, offset = self._wanted, self._wanted.start
        decoder = Decoder(wanted.topic, wanted.partition, headers=self._options.include_headers)
        guessed = max(wanted.span * _GUESSED_RECORD_BYTES, _FETCH_BYTES_MIN)
        with BatchReader(
            self._cluster,
            wanted.topic,
            wanted.partition,
            topic_id=uuid_from_text(wanted.topic_id) if wanted.topic_id else None,
            read_committed=self._options.read_committed,
            fetch_bytes=min(self._options.client.fetch_bytes, guessed),
            upto_offset=wanted.end,
        ) as reader:
            silent_until_s = self._deadline_s()
            while offset < wanted.end:
                fetched = self._fetch(reader, offset)
                if isinstance(fetched, int):
                    offset = fetched
                    continue
                next_offset = yield from decoder.decode(
                    fetched.records,
                    from_offset=offset,
                    upto_offset=wanted.end,
                    aborted=fetched.aborted,
                )
                if next_offset > offset:
                    offset, silent_until_s = next_offset, self._deadline_s()
                elif time.monotonic() > silent_until_s:
                    self._lose(self._stuck(offset, fetched))
                    return

    def _deadline_s(self) -> float:
        return time.monotonic() + self._cluster.timeout_s

    def _fetch(self, reader: BatchReader, offset: int) -> Fetched | int:
        """Fetch; where the offset is not there any more, return the one to go on from."""
        try:
            return reader.fetch(offset, wait_ms=self._options.client.wait_ms)
        except KafkaError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return self._after_loss(offset)
            if not self._is_gone(error):
                raise
            end = self._wanted.end
            self._lose(
                TopicRecreatedError(
                    f"{self._name}: records {offset} to {end - 1} cannot be read any more: "
                    f"{error.message}",
                    hint="give the query a new checkpointLocation; or, to go on without them: "
                    ".option('failOnDataLoss', 'false')",
                )
            )
            return end

    def _is_gone(self, error: KafkaError) -> bool:
        """Tell whether the topic is; brokers without ids say no more than that they lack it."""
        lacks_it = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._wanted.topic_id
        return lacks_it or isinstance(error, TopicReplacedError)

    def _after_loss(self, offset: int) -> int:
        """Return where to go on, behind the records that are gone."""
        end = self._wanted.end
        first = self._edge(admin.EARLIEST)
        if first > offset:
            follows = min(first, end)
            self._lose(fell_off(self._place, offset, follows))
            return follows
        self._lose(log_shrank(self._place, offset, self._edge(admin.LATEST)))
        return end

    def _edge(self, which: int) -> int:
        """Return where the log begins or ends."""
        return self._cluster.retrying(
            lambda: admin.list_offsets(self._cluster, {self._place: which})[self._place],
            passes=is_retriable_or_broken,
        )

    def _lose(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        _LOG.warning("%s", loss.message)

    def _stuck(self, offset: int, fetched: Fetched) -> DataLossError:
        """Say why records that were planned do not come."""
        end = self._wanted.end
        return DataLossError(
            f"{self._name}: records {offset} to {end - 1} do not come, although they were there: "
            f"the log ends at {fetched.high_watermark}, and what may be read at "
            f"{fetched.last_stable_offset}",
            hint="has the broker lost its data? see: headwater topic describe "
            f"{self._wanted.topic}; or, to go on without them: .option('failOnDataLoss', 'false')",
        )
