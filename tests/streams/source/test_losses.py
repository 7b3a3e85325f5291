"""What is said, and what is read, when records or topics are not there any more."""

import json
import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.streams.errors import CheckpointError, DataLossError, TopicRecreatedError
from headwater.streams.source.offsets import make_offsets
from tests.streams.brokers import Broker
from tests.streams.source.driving import (
    EARLIEST,
    GO_ON,
    Streams,
    pairs,
    recreate,
    remove_before,
    texts,
    values,
)


def test_records_that_fell_off_are_an_error(broker: Broker, single: str, stream: Streams) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST})
    query.all()
    broker.send(single, pairs(5, 20))
    remove_before(broker, single, 10)
    with pytest.raises(DataLossError, match="records 5 to 9 were removed before") as caught:
        query.batch()
    assert any("failOnDataLoss" in note for note in caught.value.__notes__)


def test_records_that_fell_off_are_left_out_on_request(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST, **GO_ON})
    query.all()
    broker.send(single, pairs(5, 20))
    remove_before(broker, single, 10)
    with caplog.at_level(logging.WARNING):
        assert values(query.all()) == texts(10, 20)
    assert "records 5 to 9 were removed" in caplog.text


@pytest.mark.parametrize("go_on", [False, True])
def test_records_may_fall_off_between_plan_and_task(
    broker: Broker, single: str, go_on: bool, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    broker.send(single, pairs(0, 20))
    query = stream({"subscribe": single, **EARLIEST, **(GO_ON if go_on else {})})
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    remove_before(broker, single, 15)
    if go_on:
        assert values(query.rows(start, end)) == texts(15, 20)
        assert "records 0 to 14 were removed" in caplog.text
    else:
        with pytest.raises(DataLossError, match="records 0 to 14 were removed"):
            query.rows(start, end)


def test_a_recreated_topic_is_an_error(broker: Broker, single: str, stream: Streams) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST})
    query.all()
    recreate(broker, single)
    broker.send(single, pairs(5, 15))
    with pytest.raises(TopicRecreatedError, match="is not the one that the checkpoint knows"):
        query.batch()


def test_a_recreated_topic_is_read_from_its_beginning_on_request(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST, **GO_ON})
    query.all()
    recreate(broker, single)
    broker.send(single, pairs(5, 15))
    assert values(query.all()) == texts(5, 15)
    assert "is not the one that the checkpoint knows" in caplog.text


def test_a_topic_recreated_between_plan_and_task_never_gives_its_records(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    options = {"subscribe": single, "kafka.request.timeout.ms": "1000", **EARLIEST}
    query = stream(options)
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    recreate(broker, single)
    broker.send(single, pairs(5, 15))
    with pytest.raises(TopicRecreatedError, match="records 0 to 4 cannot be read any more"):
        query.rows(start, end)
    lenient = stream({**options, **GO_ON})
    assert lenient.rows(start, end) == []


def test_a_log_that_has_lost_its_end_is_an_error_or_left_out(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    options = {"subscribe": single, "kafka.default.api.timeout.ms": "1000", **EARLIEST}
    query = stream(options)
    start = query.start()
    planned = query.reader.latestOffset(json.loads(start), ReadAllAvailable())
    planned["topics"][single]["partitions"]["0"] += 3
    end = json.dumps(planned)
    with pytest.raises(DataLossError, match="records 5 to 7 do not come") as caught:
        query.rows(start, end)
    assert any("failOnDataLoss" in note for note in caught.value.__notes__)
    lenient = stream({**options, **GO_ON})
    assert values(lenient.rows(start, end)) == texts(0, 5)


def test_a_repeated_batch_behind_the_end_of_the_log_is_an_error_or_left_out(
    broker: Broker, single: str, stream: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST})
    query.all()
    ids = {single: json.loads(query.ends[-1])["topics"][single]["id"]}
    start, end = (
        json.dumps(make_offsets({(single, 0): offset}, ids).as_json()) for offset in (8, 10)
    )
    with pytest.raises(
        DataLossError, match="the next record is 8, but the log ends at 5"
    ) as caught:
        query.rows(start, end)
    assert any("the broker has lost records" in note for note in caught.value.__notes__)
    lenient = stream({"subscribe": single, **EARLIEST, **GO_ON})
    assert lenient.rows(start, end) == []
    assert "the next record is 8, but the log ends at 5" in caplog.text


def test_a_checkpoint_of_another_source_is_named(
    broker: Broker, single: str, stream: Streams
) -> None:
    query = stream({"subscribe": single})
    query.ends = [json.dumps({single: {"0": 3}})]
    with pytest.raises(CheckpointError, match="not those of this source"):
        query.batch()
