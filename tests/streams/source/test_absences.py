"""Topics that are not there for a moment, for good, or that nobody asks for any more.

A broker that has just started does not know its topics for a moment: here it is the answers about
them that are emptied, on their way into the client.
"""

import itertools
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.base.errors import HeadwaterError
from headwater.base.uuids import uuid_from_text
from headwater.delivery.client.cluster import Cluster, is_retriable
from headwater.streams.errors import (
    DataLossError,
    SourcesChangedError,
    TopicRecreatedError,
)
from tests.streams.brokers import Broker
from tests.streams.source.driving import (
    EARLIEST,
    GO_ON,
    Streams,
    add_partitions,
    delete,
    pairs,
    recreate,
    texts,
    values,
)

# Enough to tell those who ask again from those who do not.
TRIES = 3
AS_ASKED = pytest.mark.parametrize("more", [{}, GO_ON], ids=["strict", "lenient"])


class Hiding:
    """Lets answers about topics lack some of them, a number of times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._topics: dict[str, int] = {}
        self.hidden = 0
        ask = Cluster.refresh
        hide = self._hide

        def refresh(
            cluster: Cluster, topics: Iterable[str] | None = None, *, create: bool = False
        ) -> None:
            ask(cluster, topics, create=create)
            hide(cluster)

        monkeypatch.setattr(Cluster, "refresh", refresh)

    def hide(self, topic: str, times: int) -> None:
        """Leave the topic out of the next answers that have it."""
        self._topics[topic] = times

    def _hide(self, cluster: Cluster) -> None:
        for topic, times in self._topics.items():
            if times and cluster.knows(topic):
                cluster.forget_topic(topic)
                self._topics[topic] -= 1
                self.hidden += 1


@contextmanager
def impatience() -> Iterator[None]:
    """Let all clients give up after a few tries, however long a slow machine takes for them."""

    def retrying(
        _: Cluster,
        action: Callable[[], object],
        *,
        passes: Callable[[HeadwaterError], bool] = is_retriable,
        **_more: float,
    ) -> object:
        for _try in range(TRIES - 1):
            try:
                return action()
            except HeadwaterError as error:
                if not passes(error):
                    raise
        return action()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "retrying", retrying)
        yield


@pytest.fixture
def hiding(monkeypatch: pytest.MonkeyPatch) -> Hiding:
    return Hiding(monkeypatch)


# --- for a moment -------------------------------------------------------------------------------


@AS_ASKED
@pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
def test_a_topic_that_is_unknown_for_a_moment_is_gone_on_with(
    broker: Broker, single: str, stream: Streams, hiding: Hiding, how: str, more: dict[str, str]
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({how: single, **EARLIEST, **more})
    assert values(query.all()) == texts(0, 5)
    broker.send(single, pairs(5, 9))
    hiding.hide(single, 2)
    assert values(query.all()) == texts(5, 9)
    assert hiding.hidden == 2


@AS_ASKED
def test_a_task_waits_for_a_topic_that_is_unknown_for_a_moment(
    broker: Broker, single: str, stream: Streams, hiding: Hiding, more: dict[str, str]
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST, **more})
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    hiding.hide(single, 2)
    assert values(query.rows(start, end)) == texts(0, 5)
    assert hiding.hidden == 2


@AS_ASKED
def test_a_task_waits_for_a_broker_that_knows_an_older_topic_of_the_name(
    broker: Broker,
    single: str,
    stream: Streams,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, str],
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST, **more})
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    ask, answers = Cluster.topic, itertools.count()

    def lags(cluster: Cluster, name: str, *, create: bool = False) -> object:
        found = ask(cluster, name, create=create)
        return found._replace(topic_id=b"o" * 16) if next(answers) < 2 else found

    monkeypatch.setattr(Cluster, "topic", lags)
    assert values(query.rows(start, end)) == texts(0, 5)


def test_available_now_reads_a_topic_that_was_unknown_when_its_end_was_fixed(
    broker: Broker, single: str, stream: Streams, hiding: Hiding
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST})
    query.all()
    broker.send(single, pairs(5, 9))
    later = stream({"subscribe": single, "maxOffsetsPerTrigger": "3"}, checkpoint=query)
    hiding.hide(single, 1)
    later.reader.prepareForTriggerAvailableNow()
    assert values(later.batch()) == texts(5, 8)
    broker.send(single, pairs(9, 20))
    assert values(later.all()) == texts(8, 9)
    assert hiding.hidden == 1


# --- for longer ---------------------------------------------------------------------------------


def test_the_place_in_an_absent_topic_is_kept_until_it_is_back(
    broker: Broker,
    single: str,
    topic: str,
    stream: Streams,
    hiding: Hiding,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": f"{single},{topic}", **EARLIEST, **GO_ON})
    assert values(query.all()) == texts(0, 5)
    before = json.loads(query.ends[-1])["topics"][single]
    broker.send(topic, pairs(5, 9))
    broker.send(single, pairs(9, 12))
    hiding.hide(single, 10_000)
    with caplog.at_level(logging.WARNING), impatience():
        assert values(query.all()) == texts(5, 9)
        asked = hiding.hidden
        assert query.batch() is None
        assert hiding.hidden == asked + 1, "what is believed to be gone is not waited for again"
    told = [each for each in caplog.records if "does not exist any more" in each.message]
    assert len(told) == 1
    after = json.loads(query.ends[-1])["topics"][single]
    assert (after["id"], after["partitions"]) == (before["id"], before["partitions"])
    assert uuid_from_text(after["id"])
    again = stream({"subscribe": f"{single},{topic}", **GO_ON, **EARLIEST}, checkpoint=query)
    hiding.hide(single, 0)
    assert values(again.all()) == texts(9, 12)
    assert values(query.all()) == texts(9, 12)


def test_a_first_batch_without_a_topic_is_repeated_as_it_was(
    broker: Broker, single: str, topic: str, stream: Streams, hiding: Hiding
) -> None:
    broker.send(single, pairs(0, 5))
    broker.send(topic, pairs(5, 9))
    options = {"subscribe": f"{single},{topic}", **EARLIEST, **GO_ON}
    query = stream(options)
    query.start()
    hiding.hide(single, 10_000)
    with impatience():
        assert values(query.batch()) == texts(5, 9)
    hiding.hide(single, 0)
    again = stream(options)
    assert values(again.rows(again.start(), query.ends[0])) == texts(5, 9)
    again.ends = [query.ends[0]]
    assert values(again.all()) == texts(0, 5)


def test_a_deleted_topic_is_an_error_or_left_out(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    both = {"subscribe": f"{single},{topic}", **EARLIEST}
    strict = stream(both)
    strict.all()
    lenient = stream({**both, **GO_ON}, checkpoint=strict)
    delete(broker, single)
    broker.send(topic, pairs(5, 9))
    with impatience():
        with pytest.raises(DataLossError, match="does not exist any more"):
            strict.batch()
        assert values(lenient.all()) == texts(5, 9)
    broker.create(single)
    broker.send(single, pairs(9, 12))
    assert values(lenient.all()) == texts(9, 12)


def test_a_topic_deleted_between_plan_and_task_is_an_error_or_left_out(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    broker.send(topic, pairs(5, 9))
    options = {"subscribe": f"{single},{topic}", **EARLIEST}
    query = stream(options)
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    delete(broker, single)
    with impatience():
        with pytest.raises(TopicRecreatedError, match=r"records 0 to 4 cannot be .* been deleted"):
            query.rows(start, end)
        assert values(stream({**options, **GO_ON}).rows(start, end)) == texts(5, 9)


def test_a_topic_that_comes_back_with_fewer_partitions_is_a_new_one(
    broker: Broker, topic: str, stream: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(topic, pairs(0, 20))
    query = stream({"subscribe": topic, **EARLIEST, **GO_ON})
    query.all()
    recreate(broker, topic, partitions=1)
    broker.send(topic, pairs(20, 23))
    assert values(query.all()) == texts(20, 23)
    assert json.loads(query.ends[-1])["topics"][topic]["partitions"] == {"0": 3}
    assert "is not the one that the checkpoint knows" in caplog.text


# --- what nobody asks for any more --------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
def test_a_topic_that_is_not_subscribed_any_more_is_not_read_and_no_loss(
    broker: Broker,
    single: str,
    topic: str,
    stream: Streams,
    caplog: pytest.LogCaptureFixture,
    is_there: bool,
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": f"{single},{topic}", **EARLIEST})
    query.all()
    broker.send(single, pairs(5, 7))
    if not is_there:
        broker.delete(single)
    fewer = stream({"subscribe": topic, **EARLIEST}, checkpoint=query)
    with caplog.at_level(logging.WARNING):
        assert fewer.batch() == []
        broker.send(topic, pairs(7, 9))
        assert values(fewer.all()) == texts(7, 9)
    told = [each for each in caplog.records if "not among what is read any more" in each.message]
    assert len(told) == 1
    assert list(json.loads(fewer.ends[-1])["topics"]) == [topic]


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern", "assign"])
def test_a_source_that_finds_the_offsets_of_another_is_refused(
    broker: Broker, single: str, topic: str, stream: Streams, option: str
) -> None:
    broker.send(single, pairs(0, 5))
    broker.send(topic, pairs(5, 9))
    query = stream({"subscribe": single, **EARLIEST})
    start = query.start()
    query.all()
    named = json.dumps({topic: [0, 1]}) if option == "assign" else topic
    another = stream({option: named, **EARLIEST, **GO_ON}, checkpoint=query)
    repeated = stream({option: named, **EARLIEST, **GO_ON})

    with pytest.raises(
        SourcesChangedError, match=f"reads {option} = {topic}.*, but .* offsets of {single}-0"
    ):
        another.batch()
    # Where the last batch has not ended, Spark asks for that one first.
    with pytest.raises(SourcesChangedError, match="another order or replaced") as caught:
        repeated.rows(start, query.ends[0])

    assert "new checkpointLocation" in caught.value.hint
    assert values(stream({"subscribe": single}, checkpoint=query).all()) == []


def test_topics_are_replaced_by_others_one_step_after_the_other(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    third = broker.topic("third")
    query = stream({"subscribe": f"{single},{topic}", **EARLIEST})
    broker.send(single, pairs(0, 5))
    broker.send(topic, pairs(5, 9))
    query.all()
    broker.send(third, pairs(9, 12))
    wanted = {"subscribe": f"{topic},{third}"}

    # A union's other side may look like this, and have given these rows.
    with pytest.raises(SourcesChangedError, match=f"{third}-0 would be read from the start"):
        stream(wanted, checkpoint=query).batch()
    with pytest.raises(SourcesChangedError, match=f"{third}-0 would be read from the start"):
        stream(wanted).rows(query.ends[-1], query.ends[-1])
    # With nothing to read there is a batch all the same, or the next step would be held against
    # what was read before this one.
    fewer = stream({"subscribe": topic}, checkpoint=query)
    assert [fewer.batch(), fewer.batch()] == [[], None]
    more = stream(wanted, checkpoint=fewer)
    assert values(more.all()) == texts(9, 12)
    only = stream({"subscribe": third}, checkpoint=more)
    assert [only.batch(), only.batch()] == [[], None]


def test_topics_of_a_pattern_that_are_all_deleted_and_followed_by_others_are_no_other_source(
    broker: Broker, stream: Streams
) -> None:
    prefix = uuid.uuid4().hex
    broker.create(f"{prefix}-1")
    broker.send(f"{prefix}-1", pairs(0, 5))
    query = stream({"subscribePattern": f"{prefix}-.*", **EARLIEST, **GO_ON})
    query.all()
    delete(broker, f"{prefix}-1")
    broker.create(f"{prefix}-2")
    broker.send(f"{prefix}-2", pairs(5, 9))

    with impatience():
        assert values(query.all()) == texts(5, 9)


def test_a_pattern_that_has_matched_nothing_yet_takes_what_comes(
    broker: Broker, stream: Streams
) -> None:
    prefix = uuid.uuid4().hex
    query = stream({"subscribePattern": f"{prefix}-.*", **EARLIEST})
    assert query.batch() is None
    broker.create(f"{prefix}-1")
    broker.send(f"{prefix}-1", pairs(0, 5))

    assert values(query.all()) == texts(0, 5)


def test_a_pattern_and_a_choice_of_partitions_may_become_narrower(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    query = stream({"subscribePattern": f"{single}|{topic}", **EARLIEST})
    broker.send(single, pairs(0, 5))
    for number in (0, 1):
        broker.send(topic, pairs(5, 9), partition=number)
    query.all()
    broker.send(single, pairs(9, 10))
    for number in (0, 1):
        broker.send(topic, pairs(10 + number, 11 + number), partition=number)
    narrower = stream({"subscribePattern": topic}, checkpoint=query)
    assert values(narrower.all()) == texts(10, 12)
    assert list(json.loads(narrower.ends[-1])["topics"]) == [topic]
    assigned = stream({"assign": json.dumps({topic: [1]})}, checkpoint=query)
    assert values(assigned.all()) == texts(11, 12)
    assert list(json.loads(assigned.ends[-1])["topics"][topic]["partitions"]) == ["1"]


def test_a_batch_that_was_planned_before_the_choice_changed_is_repeated_whole(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    query = stream({"subscribe": f"{single},{topic}", **EARLIEST})
    start = query.start()
    broker.send(single, pairs(0, 5))
    broker.send(topic, pairs(5, 9))
    query.all()
    add_partitions(broker, single, 2)
    fewer = stream({"subscribe": topic, **EARLIEST})
    assert values(fewer.rows(start, query.ends[0])) == texts(0, 9)
