"""Every option of the source: what it means, and what is said about a wrong one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.streams.errors import OptionError
from headwater.streams.options import (
    Bound,
    Choice,
    Kind,
    SourceOptions,
    bootstrap_of,
    check_source_options,
    includes_headers,
    names_a_source,
    source_options,
)

ONE = {"subscribe": "orders"}


def stream(given: dict[str, str] | None = None, **more: str) -> SourceOptions:
    """Read the options of a stream."""
    return source_options({**(given or {}), **more}, streaming=True, environment={})


def batch(given: dict[str, str] | None = None, **more: str) -> SourceOptions:
    """Read the options of a batch read."""
    return source_options({**(given or {}), **more}, streaming=False, environment={})


def test_a_stream_of_one_topic_needs_nothing_else() -> None:
    options = stream(ONE)
    assert options.choice == Choice(topics=("orders",))
    assert options.bootstrap == "localhost:9092"
    assert options.starting == Bound(Kind.LATEST)
    assert options.fail_on_data_loss
    assert options.read_committed
    assert not options.include_headers
    assert options.offsets_max is options.offsets_min is options.partitions_min is None
    assert options.group is None
    assert options.client.timeout_s == 30.0


def test_a_batch_read_takes_all_there_is() -> None:
    options = batch(ONE)
    assert options.starting == Bound(Kind.EARLIEST)
    assert options.ending == Bound(Kind.LATEST)


def test_names_are_taken_in_any_case() -> None:
    options = stream({"SUBSCRIBE": "a, b,a", "MAXOFFSETSPERTRIGGER": "7", "includeheaders": "TRUE"})
    assert options.choice.topics == ("a", "b")
    assert options.offsets_max == 7
    assert options.include_headers


@pytest.mark.parametrize(
    "given,choice",
    [
        ({"subscribePattern": "or.*"}, Choice(pattern="or.*")),
        ({"assign": '{"a": [1, 0, 1], "b": [2]}'}, Choice(partitions={"a": (0, 1), "b": (2,)})),
    ],
)
def test_partitions_are_chosen(given: dict[str, str], choice: Choice) -> None:
    assert stream(given).choice == choice


@pytest.mark.parametrize(
    "given,bound",
    [
        ({"startingOffsets": "Earliest"}, Bound(Kind.EARLIEST)),
        ({"startingOffsets": "latest"}, Bound(Kind.LATEST)),
        (
            {"startingOffsets": '{"a": {"0": 17, "1": -2, "2": -1}}'},
            Bound(Kind.OFFSETS, by_partition={"a": {0: 17, 1: -2, 2: -1}}),
        ),
        ({"startingTimestamp": "1700"}, Bound(Kind.TIMESTAMP, timestamp_ms=1700)),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 1700}}'},
            Bound(Kind.TIMESTAMPS, by_partition={"a": {0: 1700}}),
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": "{}", "startingOffsets": "{}"},
            Bound(Kind.TIMESTAMP, timestamp_ms=5),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": 3}}', "startingOffsets": "latest"},
            Bound(Kind.TIMESTAMPS, by_partition={"a": {0: 3}}),
        ),
    ],
)
def test_a_stream_begins_where_it_is_told(given: dict[str, str], bound: Bound) -> None:
    assert stream({**ONE, **given}).starting == bound


@pytest.mark.parametrize(
    "text,expected_ms",
    [
        ("15m", 900_000),
        ("30 seconds", 30_000),
        ("250", 250),
        ("250ms", 250),
        ("2 h", 7_200_000),
        ("0s", 0),
    ],
)
def test_times_are_written_as_in_spark(text: str, expected_ms: int) -> None:
    assert stream(ONE, maxTriggerDelay=text).trigger_delay_ms == expected_ms


def test_the_client_is_told_what_stands_behind_kafka() -> None:
    options = stream(
        {
            **ONE,
            "kafka.bootstrap.servers": "one:1,two:2",
            "kafka.request.timeout.ms": "1500",
            "kafka.max.partition.fetch.bytes": "4096",
            "kafka.group.id": "mine",
            "kafka.client.id": "me",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.password": "Se cret",
            "kafka.session.timeout.ms": "1",
        }
    )
    assert options.bootstrap == "one:1,two:2"
    assert options.client.timeout_s == 1.5
    assert options.client.fetch_bytes == 4096
    assert options.group == "mine"
    assert options.client.client_id == "me"
    assert not options.read_committed
    assert options.client.security == {"security.protocol": "SASL_SSL", "sasl.password": "Se cret"}


def test_the_address_is_an_option_or_the_environment_or_this_machine() -> None:
    environment = {"HEADWATER_BOOTSTRAP": "env:1"}
    assert bootstrap_of({"bootstrap": "here:1"}, environment) == "here:1"
    assert bootstrap_of({"Kafka.Bootstrap.Servers": "here:1"}, environment) == "here:1"
    assert bootstrap_of({}, environment) == "env:1"
    assert bootstrap_of({}, {}) == "localhost:9092"


@pytest.mark.parametrize(
    "given,words",
    [
        ({}, "no topic is named"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "both subscribe and assign"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"subscribePattern": "a("}, "no regular expression"),
        ({"assign": "a"}, "no JSON"),
        ({"assign": "[]"}, "no JSON object"),
        ({"assign": "{}"}, "names no partition"),
        ({"assign": '{"a": []}'}, "needs a list of partitions"),
        ({"assign": '{"a": [-1]}'}, "-1 is no partition"),
        ({"assign": '{"a": [true]}'}, "True is no partition"),
        ({**ONE, "startingOffsets": "newest"}, "no JSON"),
        ({**ONE, "startingOffsets": '{"a": 1}'}, "needs a number for each"),
        ({**ONE, "startingOffsets": '{"a": {"x": 1}}'}, "'x' is no partition"),
        ({**ONE, "startingOffsets": '{"a": {"0": -3}}'}, "-3 is nothing"),
        ({**ONE, "startingOffsets": '{"a": {"0": "1"}}'}, "'1' is nothing"),
        ({**ONE, "startingTimestamp": "yesterday"}, "no whole number"),
        ({**ONE, "startingOffsetsByTimestampStrategy": "next"}, "error, latest"),
        ({**ONE, "maxOffsetsPerTrigger": "0"}, "would read nothing"),
        ({**ONE, "maxOffsetsPerTrigger": "many"}, "no whole number"),
        ({**ONE, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "is above"),
        ({**ONE, "maxTriggerDelay": "soon"}, "is no time"),
        ({**ONE, "minPartitions": "-1"}, "no whole number"),
        ({**ONE, "failOnDataLoss": "maybe"}, "true, false"),
        ({**ONE, "isolation": "committed"}, "read_committed, read_uncommitted"),
        (
            {**ONE, "isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "contra",
        ),
        ({**ONE, "kafka.isolation.level": "none"}, "isolation.level"),
        ({**ONE, "bootstrap": "a:1", "kafka.bootstrap.servers": "b:1"}, "different brokers"),
        ({**ONE, "bootstrap": " "}, "is empty"),
        ({**ONE, "endingOffsets": "latest"}, "endingOffsets is for a batch"),
        ({**ONE, "startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({**ONE, "kafka.bootstrap.server": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({**ONE, "kafkabootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({**ONE, "path": "orders"}, "has no path"),
        ({**ONE, "kafka.key.deserializer": "x"}, "key.deserializer cannot be set"),
        ({**ONE, "kafka.auto.offset.reset": "x"}, "auto.offset.reset cannot be set"),
        ({**ONE, "kafka.enable.auto.commit": "x"}, "enable.auto.commit cannot be set"),
        ({**ONE, "kafka.request.timeout.ms": "0"}, "no whole number above 0"),
        ({**ONE, "kafka.group.id": ""}, "group.id is empty"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        stream(given)
    assert words in caught.value.message + caught.value.hint
    assert caught.value.hint


@pytest.mark.parametrize(
    "given,words",
    [
        ({**ONE, "startingOffsets": "latest"}, "nothing to read"),
        ({**ONE, "startingOffsets": '{"orders": {"0": -1}}'}, "nothing to read"),
        ({**ONE, "endingOffsets": "earliest"}, "nothing to read"),
        ({**ONE, "endingOffsets": '{"orders": {"0": -2}}'}, "nothing to read"),
        ({**ONE, "maxOffsetsPerTrigger": "1"}, "is for a stream"),
    ],
)
def test_a_wrong_option_of_a_batch_read_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        batch(given)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=4), st.booleans())
def test_any_text_is_understood_or_named(given: dict[str, str], streaming: bool) -> None:
    hint = "none is needed"
    try:
        source_options({**ONE, **given}, streaming=streaming, environment={})
    except HeadwaterError as error:
        hint = error.hint
    assert hint


def test_options_are_right_for_a_stream_or_for_a_batch_read() -> None:
    check_source_options({**ONE, "maxOffsetsPerTrigger": "1"})
    check_source_options({**ONE, "endingOffsets": "latest"})
    with pytest.raises(OptionError, match="did you mean startingOffsets"):
        check_source_options({**ONE, "startingOfsets": "latest"})
    with pytest.raises(OptionError, match="endingOffsets is for a batch"):
        check_source_options({**ONE, "maxOffsetsPerTrigger": "1", "endingOffsets": "latest"})


def test_a_source_is_known_by_what_it_reads() -> None:
    assert names_a_source({"Subscribe": "a"})
    assert not names_a_source({"topic": "a"})
    assert includes_headers({"INCLUDEHEADERS": "true"})
    assert not includes_headers({})
