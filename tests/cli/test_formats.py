"""Records as JSON and back, whatever is in them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.formats import Entry, parse_json, to_json
from headwater.delivery.client.consumer import Message

data = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
# Names that are no UTF-8 come as lone surrogates, as `base.record` reads them.
header_names = st.binary(max_size=8).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
messages = st.builds(
    Message,
    topic=st.just("t"),
    partition=st.integers(0, 9),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**53),
    timestamp_type=st.sampled_from([0, 1]),
    key=data,
    value=data,
    headers=st.lists(st.tuples(header_names, data), max_size=3),
)


@given(messages)
def test_nothing_is_lost_on_the_way_through_json(message: Message) -> None:
    line = to_json(message, 1)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert parse_json(line) == Entry(
        message.key, message.value, message.headers, message.timestamp_ms, message.partition
    )


@given(messages)
def test_the_line_is_json_with_kcats_names(message: Message) -> None:
    record = json.loads(to_json(message, 1))
    assert record["tstype"] == ("logappend" if message.timestamp_type else "create")
    assert ("key" in record) != ("key_b64" in record)
    assert ("payload" in record) != ("payload_b64" in record)
    assert bool(message.headers) == bool("headers" in record or "headers_b64" in record)
