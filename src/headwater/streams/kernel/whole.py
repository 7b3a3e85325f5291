"""What may be done to changes and to tables on their way to who takes them back.

This file alone decides which steps leave nothing out that says that a row is gone. Changes name a
row twice, with the same values: when it appears and when it is taken back. So a step may leave out
rows, if it does the same to both: it goes by values, says the same whenever it is asked, and does
not look at what tells the two apart. Of a table, the record that deletes a row has nothing but its
key, and so rows can be chosen by the key alone; nor may two tables be put together, of which one
would replace the rows of the other.

What an operator computes with has to be the same both times, too, or it takes back what it was
never given. Only values of rows that an operator knows by their keys are not asked for again.

A step that is not known here is refused: whoever adds one has to say why nothing gets lost in it.

In front of a topic, rows may be left out: whoever reads it sees what. But what Spark counts itself,
it counts twice where a row is taken back, and that cannot be seen any more.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame

from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.ways import (
    OP,
    Made,
    Origin,
    Way,
    is_steady,
    listed,
    references,
    ways,
)
from headwater.streams.time.clocks import HIDDEN

KEY_PART: Final = "headwater.key"
"""What metadata says of a column of the primary key: which part it is."""

_PASSING: Final = frozenset(
    {
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "EventTimeWatermark",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sort",
        "SubqueryAlias",
        "View",
    }
)
"""Steps that give each row that they are given, once."""

_SPARKS_NAMES: Final = {
    "Aggregate": "groupBy()",
    "Deduplicate": "dropDuplicates() or distinct()",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark()",
    "Distinct": "DISTINCT",
    "Except": "exceptAll()",
    "Expand": "unpivot()",
    "Generate": "explode()",
    "GlobalLimit": "limit()",
    "Intersect": "intersect()",
    "Join": "join()",
    "LocalLimit": "limit()",
    "MapInArrow": "mapInArrow()",
    "MapInPandas": "mapInPandas()",
    "Sample": "sample()",
    "Union": "union()",
}
"""What people call steps that Spark has another name for."""

_REMEMBERING: Final = frozenset(
    {"Deduplicate", "DeduplicateWithinWatermark", "Distinct", "Except", "Intersect"}
)
"""Steps of Spark that remember rows, and forget none that is taken back."""

_BEHIND: Final = "put it behind the aggregate or the join that takes these rows"


def check_whole(frame: DataFrame, found: Iterable[Way]) -> None:
    """Refuse rows of which some may be missing that say that others are gone.

    Args:
        frame: The rows.
        found: The ways of those that may be gone; what else was put to them may be anything.

    Raises:
        RetractionError: Some may be missing.
    """
    for way in found:
        _check_way(frame, way)


def check_alike(frame: DataFrame, columns: Mapping[str, Column]) -> None:
    """Refuse what is not the same of a row when it appears and when it is taken back.

    Args:
        frame: The rows, of which some may be taken back.
        columns: What an operator computes with, by what people call it.

    Raises:
        RetractionError: A column goes by what tells the two apart, or by what changes meanwhile.
    """
    named = [column.alias(f"c{number}") for number, column in enumerate(columns.values())]
    chosen = frame.select(*named)
    for way in ways(chosen):
        if way.origin is not Origin.CHANGES:
            continue
        found = listed(way.steps[0].output())
        if _maybe_unlike(frame, way.made(*found)) is None:
            continue
        for name, column in zip(columns, found, strict=True):
            unlike = _maybe_unlike(frame, way.made(column))
            if unlike is not None:
                raise RetractionError(
                    f"{name!r} is made of {unlike}, which can differ between the time a row "
                    "appears and the time it is taken back; results would be wrong",
                    hint="compute it from the other columns of the row, or add it after this "
                    "function",
                )


def _maybe_unlike(frame: DataFrame, made: Made) -> str | None:
    """Return what columns are made of that is not the same both times."""
    # The version of a row that is taken back is that with which it was given.
    told = sorted(made.of & {OP, HIDDEN})
    if told:
        return ", ".join(told)
    unsteady = (each for each in made.by if not is_steady(frame, each))
    return next((_told([], each) for each in unsteady), None)


def check_counted(frame: DataFrame) -> None:
    """Refuse what Spark counts or remembers of rows that may be gone by then.

    Whoever goes by `op` says himself what becomes of rows that are taken back: an aggregate may do
    so, or a filter in front.

    Raises:
        RetractionError: It does so.
    """
    for way in ways(frame):
        for number, step in enumerate(way.steps):
            name = step.nodeName()
            if way.origin is Origin.CHANGES and (name in _REMEMBERING or _joins_streams(step)):
                is_counted = True
            elif way.origin is not Origin.FINAL and name == "Aggregate":
                # Whoever drops the `op` of a table takes its changes for events.
                is_given_op = way.origin is Origin.CHANGES or bool(way.kept(OP, number + 1))
                is_counted = is_given_op and not _goes_by_op(way, number)
            else:
                continue
            if is_counted and not _are_chosen_by_op(way, number):
                called = _SPARKS_NAMES.get(name, name)
                raise RetractionError(
                    f"Spark's own {called} is given rows that may be gone later, and would count "
                    "them all the same",
                    hint="use hf.aggregate, hf.top, hf.join_latest or hf.join_tables, which take "
                    "changes and tables; or write the rows to a topic, and read that; to count the "
                    'changes themselves, go by "op": groupBy(..., "op"), or where("op = ...") '
                    "before it",
                )


def _goes_by_op(way: Way, number: int) -> bool:
    """Tell whether a step of a way looks at `op`, under whatever name."""
    columns = references(way.steps[number])
    return any(OP in way.made(each, above=number + 1).of for each in columns)


def _are_chosen_by_op(way: Way, above: int) -> bool:
    """Tell whether rows were chosen by `op` before a step is given them."""
    return any(
        step.nodeName() == "Filter" and _goes_by_op(way, number)
        for number, step in enumerate(way.steps)
        if number > above
    )


def _joins_streams(node: Any) -> bool:  # noqa: ANN401 - an object of the JVM
    sides = listed(node.children())
    return node.nodeName() == "Join" and all(side.isStreaming() for side in sides)


def _check_way(frame: DataFrame, way: Way) -> None:
    is_table = way.origin is Origin.TABLE
    for number, step in enumerate(way.steps):
        name = step.nodeName()
        if name == "Filter":
            condition = step.condition()
            if is_table:
                _check_chosen_by_key(frame, way, condition, above=number + 1)
            else:
                _check_chosen_alike(frame, way, condition, above=number + 1)
        elif name == "Union" and not is_table:
            continue
        elif name not in _PASSING:
            rows = "rows of a table are" if is_table else "rows that may be taken back are"
            raise RetractionError(
                f"{rows} given to {_SPARKS_NAMES.get(name, name)}, which may leave out the record "
                "that says that a row is gone",
                hint=f'{_BEHIND}; to take every change for an event: drop("op")'
                if is_table
                else _BEHIND,
            )


def _check_chosen_by_key(frame: DataFrame, way: Way, condition: Any, above: int) -> None:  # noqa: ANN401
    """Refuse a condition on a table that goes by anything but the key."""
    key = way.said(KEY_PART, above)
    others = (each.name() for each in references(condition) if each.exprId().id() not in key)
    chosen_by = sorted(set(others))
    if not chosen_by and is_steady(frame, condition):
        return
    raise RetractionError(
        f"rows of a table were chosen by {_told(chosen_by, condition)}: that a row is gone, "
        "or does not fit any more, would go unnoticed",
        hint="choose rows of what comes out, or by the primary key alone; an aggregate counts "
        "some rows by hf.count(F.when(CONDITION, 1))",
    )


def _check_chosen_alike(frame: DataFrame, way: Way, condition: Any, above: int) -> None:  # noqa: ANN401
    """Refuse a condition on changes that keeps a row and leaves out that it is taken back."""
    told: set[str] = set()
    by = [condition]
    for column in references(condition):
        made = way.made(column, above=above)
        told |= made.of
        by += made.by
    if not told and all(is_steady(frame, each) for each in by):
        return
    raise RetractionError(
        f"rows that may be taken back were chosen by {_told(sorted(told), condition)}: a "
        "row could be kept, and the record that takes it back left out",
        hint="choose rows by their values alone, or of what comes out; for rows that are never "
        "taken back, a window with late=hf.drop()",
    )


def _told(names: list[str], condition: Any) -> str:  # noqa: ANN401 - an object of the JVM
    """Return what rows were chosen by: columns, or a condition that says now this and now that."""
    return ", ".join(names) or f"what is not the same in every batch, {condition.sql():.60}"
