"""A broker that goes away, for a while, for good, or with all it had."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.base.clock import Clock
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.streams.errors import TopicRecreatedError
from headwater.streams.source import stream_reader
from headwater.streams.source.progress import Progress
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.source.driving import EARLIEST, Query, pairs, texts, values

IMPATIENT = {"kafka.request.timeout.ms": "1000"}
PATIENT = {"kafka.request.timeout.ms": "30000"}


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Give a broker that the test may stop and start."""
    with EmbeddedBroker(data_directory=str(tmp_path / "data")) as broker:
        yield broker


@pytest.fixture
def broker(mortal: EmbeddedBroker) -> Broker:
    return Broker(HEADWATER, mortal.bootstrap_servers)


def test_a_broker_that_stays_away_ends_the_query_by_name(
    mortal: EmbeddedBroker, broker: Broker, single: str
) -> None:
    broker.send(single, pairs(0, 5))
    query = Query(broker, {"subscribe": single, **EARLIEST, **IMPATIENT})
    start = query.start()
    query.all()
    mortal.stop()
    began = time.monotonic()
    with pytest.raises(BrokerUnreachableError, match=r"no broker answers at|connection") as caught:
        query.batch()
    assert caught.value.hint
    with pytest.raises(BrokerUnreachableError):
        query.rows(start, query.ends[0])
    # Twice the time-out of a second and once that of the mirror, not a loop without end.
    assert time.monotonic() - began < 20
    query.reader.stop()


def test_a_broker_that_comes_back_is_waited_for(
    mortal: EmbeddedBroker, broker: Broker, single: str
) -> None:
    broker.send(single, pairs(0, 5))
    query = Query(broker, {"subscribe": single, **EARLIEST})
    assert values(query.all()) == texts(0, 5)
    broker.send(single, pairs(5, 9))
    mortal.stop()
    back = threading.Timer(0.5, mortal.start)
    back.start()
    assert values(query.all()) == texts(5, 9)
    back.join()
    start, end = json.dumps(query.reader.initialOffset()), query.ends[0]
    mortal.stop()
    back = threading.Timer(0.5, mortal.start)
    back.start()
    assert values(query.rows(start, end)) == texts(0, 5)
    back.join()
    query.reader.stop()


def test_a_wiped_data_directory_is_no_new_data(
    mortal: EmbeddedBroker, broker: Broker, single: str, tmp_path: Path
) -> None:
    broker.send(single, pairs(0, 5))
    query = Query(broker, {"subscribe": single, **EARLIEST, **IMPATIENT})
    start = query.start()
    query.all()
    port = int(mortal.bootstrap_servers.rpartition(":")[2])
    mortal.stop()
    with EmbeddedBroker(data_directory=str(tmp_path / "new"), port=port):
        broker.create(single)
        broker.send(single, pairs(5, 15))
        with pytest.raises(TopicRecreatedError, match="is not the one"):
            query.batch()
        with pytest.raises(TopicRecreatedError):
            query.rows(start, query.ends[0])
        lenient = Query(broker, {"subscribe": single, "failOnDataLoss": "false"}, checkpoint=query)
        assert values(lenient.all()) == texts(5, 15)
        lenient.reader.stop()
    query.reader.stop()


def test_a_broker_that_was_never_there_is_named(single: str) -> None:
    nowhere = Broker(HEADWATER, "127.0.0.1:1")
    query = Query(nowhere, {"subscribe": single, **IMPATIENT})
    with pytest.raises(BrokerUnreachableError, match=r"no broker answers at 127.0.0.1:1"):
        query.reader.initialOffset()
    with pytest.raises(BrokerUnreachableError):
        query.reader.prepareForTriggerAvailableNow()
    query.reader.stop()


def test_the_mirror_never_holds_up_a_query_for_long(
    mortal: EmbeddedBroker,
    broker: Broker,
    single: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patiences_s: list[float] = []

    class Watched(Progress):
        def __init__(self, cluster: Cluster, clock: Clock) -> None:
            patiences_s.append(cluster.timeout_s)
            super().__init__(cluster, clock)

    monkeypatch.setattr(stream_reader, "Progress", Watched)
    broker.send(single, pairs(0, 5))
    query = Query(broker, {"subscribe": single, **EARLIEST, **PATIENT})
    assert patiences_s == [3.0], "of the 30 s that the client has"
    end = query.reader.latestOffset(json.loads(query.start()), ReadAllAvailable())
    mortal.stop()
    query.reader.commit(end)
    query.reader.commit(end)
    told = [each for each in caplog.records if "does not show in group" in each.message]
    assert len(told) == 1
    query.reader.stop()
