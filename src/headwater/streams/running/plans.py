"""What of a plan a checkpoint depends on.

This file alone decides which changes of a query a checkpoint survives: filters and columns may
change, its sources and whatever keeps state may not. It is pure: it reads the text that Spark
prints of a plan, in which what streams is marked.
"""

import hashlib
import io
import re
from collections import Counter
from contextlib import redirect_stdout
from typing import Any, NamedTuple

# Operators that keep something from batch to batch, as Spark names them in an analysed plan.
_STATEFUL = re.compile(
    r"Aggregate|Deduplicate|Join|GlobalLimit|EventTimeWatermark|UpdateEventTimeWatermarkColumn"
    r"|\w*WithState\w*|\w*TransformWithState\w*"
)
_SOURCE = re.compile(r"StreamingRelation\w*|StreamingDataSource\w*")
_NODE = re.compile(r"^[\s:]*(?:[+:]- )?~(\w+)(.*)$")
# A value may have commas of its own; the next option's name ends it.
_SUBSCRIBED = re.compile(r"\b(?:subscribe|subscribePattern|assign)=(.*?)(?:,\s*[\w.]+=|\])")
# What differs from one session to the next: ids of expressions and of objects.
_IDS = re.compile(r"#\d+L?|@[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12},? ?")
_TEXT_MAX = 2_000
# Of longer lists Spark prints the beginning: columns would be missing.
_COLUMNS_SHOWN = "spark.sql.debug.maxToStringFields"
_COLUMNS_MAX = 100_000


class Operator(NamedTuple):
    """Something in a plan that a checkpoint depends on.

    Attributes:
        name: What Spark calls it.
        detail: What it does, as far as that is the same in every session.
    """

    name: str
    detail: str


def plan_text(frame: Any) -> str:  # noqa: ANN401 - a DataFrame of any kind of session
    """Return all plans of a DataFrame as Spark prints them, in any kind of session."""
    printed = io.StringIO()
    conf = frame.sparkSession.conf
    shown = conf.get(_COLUMNS_SHOWN)
    conf.set(_COLUMNS_SHOWN, _COLUMNS_MAX)
    try:
        with redirect_stdout(printed):
            frame.explain(mode="extended")
    finally:
        conf.set(_COLUMNS_SHOWN, shown)
    return printed.getvalue()


def section(text: str, title: str) -> str:
    """Return one of the plans."""
    _, _, rest = text.partition(f"== {title} ==\n")
    return rest.partition("\n== ")[0].strip()


def operators(analyzed: str) -> list[Operator]:
    """Return what a checkpoint depends on, from the sink down to the sources."""
    found = []
    read: set[str] = set()
    for line in analyzed.splitlines():
        node = _NODE.match(line)
        if node is None:
            continue
        name, detail = node[1], _shortened(_IDS.sub("", node[2]).strip())
        if _SOURCE.fullmatch(name):
            # One that is read again, for dead letters say, has no offset of its own.
            if node[2] not in read:
                found.append(Operator("source", _source(detail)))
            read.add(node[2])
        elif _STATEFUL.fullmatch(name):
            found.append(Operator(name, detail))
    return found


def times_read(analyzed: str) -> list[int]:
    """Return how often a plan reads each of its sources, in the order in which Spark tells of them.

    A source that is read twice is one source with one offset, whose rows Spark counts twice.
    """
    nodes = [_NODE.match(line) for line in analyzed.splitlines()]
    sources = [node[2] for node in nodes if node is not None and _SOURCE.fullmatch(node[1])]
    return list(Counter(sources).values())


def topics_read(analyzed: str) -> list[str]:
    """Return what the sources of a plan subscribe to, in the words of their options."""
    relations = [line for line in analyzed.splitlines() if "StreamingRelation" in line]
    return list(dict.fromkeys(each for line in relations for each in _SUBSCRIBED.findall(line)))


def _shortened(text: str) -> str:
    """Return the beginning of a long text, and a sum by which its end is known."""
    if len(text) <= _TEXT_MAX:
        return text
    return f"{text[:_TEXT_MAX]}... {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def _source(detail: str) -> str:
    """Return a source's format alone: where it begins and how fast it reads may change."""
    words = [word.strip() for word in detail.split(",")]
    return words[1] if len(words) > 1 else detail


def difference(old: list[Operator], new: list[Operator], *, details: bool) -> str | None:
    """Say what has changed, or nothing if a checkpoint of the old fits the new.

    Args:
        old: What the checkpoint was made with.
        new: What is to run.
        details: Whether texts can be compared: those of another Spark may differ for no reason.
    """
    old_names, new_names = [each.name for each in old], [each.name for each in new]
    if old_names != new_names:
        if sorted(old_names) == sorted(new_names):
            return f"operators were reordered, from {_chain(old_names)} to {_chain(new_names)}"
        gone = _without(old_names, new_names)
        more = _without(new_names, old_names)
        told = [f"{name} was removed" for name in gone] + [f"{name} was added" for name in more]
        return ", ".join(told)
    if details:
        for was, now in zip(old, new, strict=True):
            if was.detail != now.detail:
                return f"{now.name} was {was.detail} and is {now.detail}"
    return None


def _without(names: list[str], others: list[str]) -> list[str]:
    left = list(others)
    rest = []
    for name in names:
        if name in left:
            left.remove(name)
        else:
            rest.append(name)
    return rest


def _chain(names: list[str]) -> str:
    return " <- ".join(names)
