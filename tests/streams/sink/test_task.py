"""What becomes of records that are too large, in a task and without Spark."""

import pyarrow as pa

from headwater.base.record.records import Record, iterate
from headwater.streams.formats.letters import Header, maybe_origin
from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.message import Outbox
from headwater.streams.sink.options import sink_options
from headwater.streams.sink.task import encode_rows
from tests.streams.brokers import Broker

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def letter_of(near: Broker, value: bytes, headers: list[Header], *, letter_bytes: int) -> Record:
    """Return what the dead-letter topic gets of a record that is too large."""
    letters = near.topic("letters", config={"max.message.bytes": str(letter_bytes)})
    given = {
        "bootstrap": near.bootstrap,
        "topic": near.topic("narrow", config={"max.message.bytes": "1000"}),
        "oversized": "deadLetter",
        "deadLetterTopic": letters,
        "includeHeaders": "true",
    }
    column = [[{"key": name, "value": data} for name, data in headers]]
    row = pa.record_batch({"value": [value], "headers": pa.array(column, HEADERS_TYPE)})
    with Outbox(Attempt("query", "run", 0), None) as outbox:
        encode_rows([row], sink_options(given), outbox)
        ((place, (batch,)),) = outbox.message().batches.items()
    assert place == (letters, 0)
    assert len(batch) <= letter_bytes
    (record,) = iterate(batch)
    return record


def test_a_letter_keeps_the_headers_that_its_record_had(near: Broker) -> None:
    headers: list[Header] = [("trace", b"\xff"), ("x-error", b"NOT_JSON: of an earlier death")]
    letter = letter_of(near, bytes(2000), headers, letter_bytes=100_000)
    assert letter.value == bytes(2000)
    assert list(letter.headers[:2]) == headers
    origin = maybe_origin(letter.headers)
    assert origin is not None
    assert origin.error.startswith("OVERSIZED: a record of 2")


def test_a_letter_that_is_cut_keeps_what_headers_it_can(near: Broker) -> None:
    headers: list[Header] = [("trace", b"\xff"), ("none", None), ("huge", bytes(90_000))]
    letter = letter_of(near, bytes(20_000), headers, letter_bytes=60_000)
    assert letter.value == bytes(16 << 10)
    assert list(letter.headers[:2]) == headers[:2]
    assert "huge" not in dict(letter.headers)
    origin = maybe_origin(letter.headers)
    assert origin is not None
    assert "only the first 16384 bytes" in origin.error
