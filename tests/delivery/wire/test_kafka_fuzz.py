"""Bytes that are no message: refused by name, at once, and without memory.

Every version of every message is encoded with all of its fields set, then cut short, and changed
where lengths, counts, markers and tags may stand.
"""

import contextlib
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import MalformedMessageError
from headwater.base.schema import Message, codec
from headwater.delivery.wire.kafka import framing, messages
from headwater.delivery.wire.kafka.apis import APIS, UnsupportedApiError
from tests.delivery.wire.message_strategies import filled

EVERY_MESSAGE = [messages.CATALOGUE.message(name) for name in messages.CATALOGUE.table.names()]

MUTATIONS_PER_VERSION = 100
LIES_PER_VERSION = 50

# Each means something as a length: null, negative, the longest, one too long, more than there is.
BAD_BYTES = [
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x01",
]


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
def test_every_prefix_is_refused(message: type[Message]) -> None:
    for version in message.__schema__.versions:
        ours = codec(message, version)
        data = ours.encode(filled(message, version))
        for size in range(len(data)):
            with pytest.raises(MalformedMessageError):
                ours.decode(data[:size])


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
def test_changed_bytes_are_refused_or_mean_something_else(message: type[Message]) -> None:
    chance = random.Random(message.__name__)
    for version in message.__schema__.versions:
        ours = codec(message, version)
        data = ours.encode(filled(message, version))
        for _ in range(MUTATIONS_PER_VERSION):
            changed = bytearray(data)
            at = chance.randrange(len(data) or 1)
            bad = chance.choice(BAD_BYTES)
            changed[at : at + len(bad)] = bad
            try:
                decoded, end = ours.decode(changed)
            except MalformedMessageError:
                continue
            assert end <= len(changed)
            # What was accepted is a message: it can be written, and means the same again.
            written = ours.encode(decoded)
            assert ours.encode(ours.decode(written)[0]) == written


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
def test_lying_counts_cost_no_memory(message: type[Message]) -> None:
    for version in {message.__schema__.versions[0], message.__schema__.versions[-1]}:
        ours = codec(message, version)
        data = ours.encode(filled(message, version))
        lies = [
            data[:at] + lie + data[at:]
            for at in range(0, len(data), len(data) // LIES_PER_VERSION + 1)
            for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07")
        ]
        ours.decode(data)
        tracemalloc.start()
        try:
            for lie in lies:
                with contextlib.suppress(MalformedMessageError):
                    ours.decode(lie)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak_bytes < 1_000_000


@given(
    key=st.sampled_from(sorted(APIS)),
    version=st.integers(-1, 20),
    rest=st.binary(max_size=200),
    kind=st.sampled_from([bytes, bytearray, lambda data: memoryview(bytearray(data))]),
)
def test_any_frame_is_a_request_or_refused(
    key: int, version: int, rest: bytes, kind: type[bytes]
) -> None:
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest
    try:
        header, _ = framing.decode_request(kind(frame))
    except (MalformedMessageError, UnsupportedApiError):
        return
    assert (header.api_key, header.api_version) == (key, version)


@given(st.binary(max_size=50))
def test_any_bytes_are_a_request_or_refused(frame: bytes) -> None:
    with contextlib.suppress(MalformedMessageError, UnsupportedApiError):
        framing.decode_request(frame)


@given(key=st.sampled_from(sorted(APIS)), frame=st.binary(max_size=100))
def test_any_bytes_are_a_response_or_refused(key: int, frame: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        framing.decode_response(key, APIS[key].max_version, frame)


@pytest.mark.parametrize("length, accepted", [(32_767, True), (32_768, False)])
def test_a_string_is_no_longer_than_its_oldest_form_allows(length: int, *, accepted: bool) -> None:
    """A longer one could be taken in by a new version and not be repeated to an old client."""
    frame = b"".join(
        framing.encode_request(10, 3, 1, None, messages.FindCoordinatorRequest(key="x" * length))
    )[4:]

    if accepted:
        assert framing.decode_request(frame)[1].key == "x" * length
    else:
        with pytest.raises(MalformedMessageError, match="too long"):
            framing.decode_request(frame)
