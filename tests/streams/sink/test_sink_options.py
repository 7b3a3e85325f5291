"""What the sink's options mean, and which are refused."""

import pytest

from headwater.base.record.codecs import Codec
from headwater.streams.errors import OptionError
from headwater.streams.sink.options import SinkOptions, sink_options


def _options(**given: str) -> SinkOptions:
    return sink_options({name.replace("__", "."): text for name, text in given.items()})


def test_defaults() -> None:
    options = sink_options({}, environment={})

    assert options.bootstrap == "localhost:9092"
    assert options.topic is None
    assert options.sink_name == "sink"
    assert options.codec is Codec.NONE
    assert options.dead_letter_topic is None
    assert options.staging_location is None
    assert options.include_headers
    assert options.record_bytes_max == 1 << 20
    assert options.transaction_timeout_ms is None


def test_names_are_read_in_any_case_as_spark_hands_them_over() -> None:
    options = sink_options(
        {
            "TOPIC": "orders",
            "sinkname": "first",
            "kafka.Bootstrap.Servers": "there:1",
            "OverSized": "DEADLETTER",
            "deadlettertopic": "orders.dlq",
            "checkpointlocation": "/c",
        }
    )

    assert options.topic == "orders"
    assert options.sink_name == "first"
    assert options.bootstrap == "there:1"
    assert options.dead_letter_topic == "orders.dlq"


@pytest.mark.parametrize(
    "text, codec",
    [("lz4", Codec.LZ4), ("ZSTD", Codec.ZSTD), ("uncompressed", Codec.NONE), ("gzip", Codec.GZIP)],
)
def test_compression_has_two_names(text: str, codec: Codec) -> None:
    assert _options(compression=text).codec is codec
    assert _options(kafka__compression__type=text).codec is codec


def test_producer_options_by_kafkas_names() -> None:
    options = _options(
        kafka__max__request__size="2000000",
        kafka__batch__size="100000",
        kafka__transaction__timeout__ms="900000",
        kafka__acks="all",
        kafka__linger__ms="5",
    )

    assert options.record_bytes_max == 2_000_000
    assert options.batch_bytes == 100_000
    assert options.transaction_timeout_ms == 900_000


@pytest.mark.parametrize("text, path", [("/a/b", "/a/b"), ("file:/a", "/a"), ("file:///a", "/a")])
def test_a_staging_location_is_a_directory(text: str, path: str) -> None:
    assert _options(stagingLocation=text).staging_location == path


@pytest.mark.parametrize(
    "given, message",
    [
        ({"topik": "x"}, "did you mean topic"),
        ({"path": "orders"}, "has no path"),
        ({"topic": " "}, "topic is empty"),
        ({"compression": "rar"}, "unknown"),
        ({"compression": "lz4", "kafka.compression.type": "gzip"}, "contradict"),
        ({"oversized": "drop"}, "oversized"),
        ({"oversized": "deadLetter"}, "needs a deadLetterTopic"),
        ({"deadLetterTopic": "x"}, "oversized is not deadLetter"),
        ({"stagingLocation": "s3://bucket/x"}, "no directory"),
        ({"stagingLocation": "here"}, "not absolute"),
        ({"sinkName": "a/b"}, "no name"),
        ({"includeHeaders": "perhaps"}, "includeHeaders"),
        ({"kafka.acks": "1"}, "needs all"),
        ({"kafka.enable.idempotence": "false"}, "needs true"),
        ({"kafka.transactional.id": "mine"}, "cannot be set"),
        ({"kafka.partitioner.class": "x.Y"}, "cannot be set"),
        ({"kafka.key.serializer": "x"}, "cannot be set"),
        ({"kafka.batch.size": "0"}, "above 0"),
        ({"kafka.group.id": "g"}, "an option of the source"),
        ({"kafka.Isolation.Level": "read_committed"}, "an option of the source"),
        ({"kafka.fetch.max.bytes": "1"}, "an option of the source"),
        ({"kafka.fetch.min.byte": "1"}, "no option of the client"),
        ({"kafka.compresion.type": "lz4"}, r"did you mean kafka\.compression\.type"),
        ({"asyncProgressTrackingEnabled": "true"}, "exclude each other"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        sink_options(given)

    assert caught.value.hint


def test_async_progress_tracking_that_is_off_is_no_matter() -> None:
    assert _options(asyncProgressTrackingEnabled="false", topic="x").topic == "x"
