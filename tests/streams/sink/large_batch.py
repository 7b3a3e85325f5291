"""A process that writes one large batch as a task and as the driver, and tells what memory it took.

This file alone decides how that is measured: by the kernel's own mark of the most that was ever
resident, reset when everything is loaded, compiled and connected.

    python -m tests.streams.sink.large_batch BOOTSTRAP TOPIC FOLDER MEGABYTES
"""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.message import Outbox, TaskMessage
from headwater.streams.sink.options import SinkOptions, sink_options
from headwater.streams.sink.staging import shared_root
from headwater.streams.sink.task import encode_rows
from headwater.streams.sink.writer import HeadwaterStreamWriter

_ROW = b"x" * 1000
_ROWS = 1_000


def _rows(count: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, _ROWS):
        keys = [b"%d" % number for number in range(first, first + _ROWS)]
        yield pa.record_batch({"key": keys, "value": [_ROW] * _ROWS})


def _task(options: SinkOptions, attempt: Attempt, folder: str, count: int) -> TaskMessage:
    with Outbox(attempt, partial(shared_root, folder)) as outbox:
        encode_rows(_rows(count), options, outbox)
        return outbox.message()


def _resident_kb(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def _reset() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _resident_kb("VmRSS")


def main() -> None:
    """Write a small batch to warm up, then the large one."""
    bootstrap, topic, folder, megabytes = sys.argv[1:]
    options = sink_options({"bootstrap": bootstrap, "topic": topic})
    writer = HeadwaterStreamWriter(options)
    query = str(uuid.uuid4())
    writer.commit([_task(options, Attempt(query, "run", 0), folder, 20_000)], 0)
    before_kb = _reset()
    message = _task(options, Attempt(query, "run", 1), folder, int(megabytes) * 1_000)
    task_kb = _resident_kb("VmHWM") - before_kb
    before_kb = _reset()
    writer.commit([message], 1)
    driver_kb = _resident_kb("VmHWM") - before_kb
    told = {"sent": message.size_bytes, "task_kb": task_kb, "driver_kb": driver_kb}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
