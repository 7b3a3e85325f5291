"""The source's offsets as Spark keeps them in its checkpoint.

This file alone decides the form of the JSON, and reads no broker and no clock:

    {"version": 1, "group": "...", "topics": {"orders": {"id": "...", "partitions": {"0": 17}}}}

`partitions` has the offset of the next record to read. `id` is the topic's id in Kafka's text form,
so that a topic of the same name but other contents is noticed; brokers without ids leave it empty.
`group` is the consumer group into which progress is mirrored, drawn once per checkpoint. One of
`subscribe`, `pattern` and `assign` is there, too: the choice of the source that wrote it, by which
it is told from another source. A sink that finds its own topic among those of a pattern refuses it.
Earlier releases wrote none of the three, or `pattern` alone.

Spark writes down where a batch ends, but asks again where the first one begins, also when it
repeats it after a crash; and a partition that appears between two batches has no place in the
earlier one. So an end also says where its batch begins, in `began`, for each partition of which its
start cannot: all of a first batch, new ones, and those whose records have fallen off the log.
`"initial": true` marks what nothing was read from yet.

To change the form: raise `VERSION`, and keep reading the old one; checkpoints outlive releases.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.streams.errors import CheckpointError, OptionError
from headwater.streams.options import Choice, choice_as_json, choice_of

VERSION = 1
Place = tuple[str, int]
_CHOICES = {"subscribe": "subscribe", "pattern": "subscribePattern", "assign": "assign"}
"""What stands in the offsets for each option that says what is read."""


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Where reading stands in one topic."""

    topic_id: str
    partitions: Mapping[int, int]
    began: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where reading stands in all topics."""

    topics: Mapping[str, TopicOffsets]
    group: str = ""
    initial: bool = False
    choice: Choice | None = None

    def positions(self) -> dict[Place, int]:
        """Return the offset of the next record of each partition."""
        return {
            (topic, number): offset
            for topic, each in self.topics.items()
            for number, offset in each.partitions.items()
        }

    def began(self) -> dict[Place, int]:
        """Return where the batch that ends here begins, for partitions that its start lacks."""
        return {
            (topic, number): offset
            for topic, each in self.topics.items()
            for number, offset in each.began.items()
        }

    def only(self, takes: Callable[[str, int], bool]) -> "Offsets":
        """Return the same without the partitions that are not taken."""
        return make_offsets(
            {place: offset for place, offset in self.positions().items() if takes(*place)},
            {topic: each.topic_id for topic, each in self.topics.items()},
            began={place: offset for place, offset in self.began().items() if takes(*place)},
            group=self.group,
            initial=self.initial,
            choice=self.choice,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what Spark stores; equal offsets give equal texts, for Spark compares these."""
        made: dict[str, Any] = {"version": VERSION}
        if self.group:
            made["group"] = self.group
        if self.initial:
            made["initial"] = True
        if self.choice is not None:
            said = choice_as_json(self.choice)
            made |= {name: said[option] for name, option in _CHOICES.items() if option in said}
        made["topics"] = {
            topic: _topic_as_json(each) for topic, each in sorted(self.topics.items())
        }
        return made


def make_offsets(
    positions: Mapping[Place, int],
    ids: Mapping[str, str],
    *,
    began: Mapping[Place, int] | None = None,
    group: str = "",
    initial: bool = False,
    choice: Choice | None = None,
) -> Offsets:
    """Build offsets from one number per partition."""
    topics = {}
    for topic in sorted({topic for topic, _ in positions}):
        topics[topic] = TopicOffsets(
            ids.get(topic, ""), dict(_of_topic(positions, topic)), dict(_of_topic(began, topic))
        )
    return Offsets(topics, group, initial, choice)


def parse_offsets(stored: Any) -> Offsets:  # noqa: ANN401 - whatever a checkpoint holds
    """Read what Spark has stored.

    Raises:
        CheckpointError: It is not ours, or of a version that this release does not know.
    """
    if not isinstance(stored, dict) or "version" not in stored:
        raise CheckpointError(
            "the checkpoint's offsets are not those of this source",
            hint="it belongs to another source; give the query a new checkpointLocation, and "
            "startingOffsets if it is to go on where the other stopped",
        )
    if stored["version"] != VERSION:
        raise CheckpointError(
            f"the checkpoint's offsets are of version {stored['version']}; this release reads "
            f"version {VERSION}",
            hint="use the release of Headwater that wrote it, or a newer one",
        )
    try:
        topics = {
            topic: TopicOffsets(
                str(each["id"]), _numbers(each["partitions"]), _numbers(each.get("began", {}))
            )
            for topic, each in stored["topics"].items()
        }
        said = {option: stored[name] for name, option in _CHOICES.items() if name in stored}
        choice = choice_of(said) if said else None
    except (AttributeError, KeyError, TypeError, ValueError, OptionError) as error:
        raise CheckpointError(
            f"the checkpoint's offsets are damaged: {error!r}",
            hint="restore the checkpoint, or give the query a new checkpointLocation",
        ) from error
    return Offsets(topics, str(stored.get("group", "")), stored.get("initial") is True, choice)


def _topic_as_json(each: TopicOffsets) -> dict[str, Any]:
    made: dict[str, Any] = {"id": each.topic_id, "partitions": _texts(each.partitions)}
    if each.began:
        made["began"] = _texts(each.began)
    return made


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in sorted(numbers.items())}


def _numbers(texts: Mapping[str, int]) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in texts.items()}


def _of_topic(numbers: Mapping[Place, int] | None, topic: str) -> Iterator[tuple[int, int]]:
    for (name, number), offset in (numbers or {}).items():
        if name == topic:
            yield number, offset
