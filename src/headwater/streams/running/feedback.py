"""Whether a pipeline would read what it writes.

This file alone decides that a pipeline is not started whose sources choose topics by a pattern
that the topic it writes to matches: each row would come back as input. Whoever names a topic with
`subscribe` and writes to it wants the rows back.

The sink refuses such a batch as well, but then Spark's checkpoint has the plan of it, and repeats
it however the pattern is changed. It is pure: it reads the text that Spark prints of a plan.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from headwater.streams.options import Choice, bootstrap_of
from headwater.streams.sink.errors import FeedbackError

# Our own source, the list of its options, and the first of its columns.
_RELATION: Final = re.compile(r"StreamingRelationV2 .*?, headwater, .*?, \[(.*?)\], \[key#\d+")
# A value may have commas of its own; the next option's name ends it.
_BETWEEN_OPTIONS: Final = re.compile(r",\s+(?=[\w.]+=)")
_PATTERN: Final = "subscribepattern"


class _Source(NamedTuple):
    """A source that chooses topics by a pattern."""

    pattern: str
    bootstrap: str

    def matches(self, topic: str) -> bool:
        try:
            return Choice(pattern=self.pattern).matches(topic)
        except re.error:
            return False  # the source says so itself


def refuse_feedback(name: str, topics: Sequence[str], *, bootstrap: str, analyzed: str) -> None:
    """Refuse a pipeline that would read its own rows.

    Args:
        name: The pipeline.
        topics: What it writes to.
        bootstrap: The brokers that have these.
        analyzed: Its plan, as Spark prints it.

    Raises:
        FeedbackError: A pattern of one of its sources matches one of the topics.
    """
    brokers = _brokers(bootstrap)
    for source in _sources(analyzed):
        # A mirror may give a topic the name that it has elsewhere.
        if brokers.isdisjoint(_brokers(source.bootstrap)):
            continue
        for topic in filter(source.matches, topics):
            raise FeedbackError(
                f"pipeline {name!r} writes to {topic!r} and would read it as well, because its "
                f"subscribePattern {source.pattern!r} matches it: each row would come back as "
                "input",
                hint="let the pattern leave that topic out, name the topics with subscribe, or "
                "write to another topic; nothing has been read or written",
            )


def _sources(analyzed: str) -> Iterator[_Source]:
    for relation in _RELATION.finditer(analyzed):
        given = _options(relation[1])
        pattern = {key.lower(): text for key, text in given.items()}.get(_PATTERN)
        if pattern is not None:
            yield _Source(pattern, bootstrap_of(given))


def _options(listed: str) -> Mapping[str, str]:
    found = (each.partition("=") for each in _BETWEEN_OPTIONS.split(listed))
    return {key: text for key, _, text in found}


def _brokers(bootstrap: str) -> set[str]:
    return {each.strip() for each in bootstrap.split(",")}
