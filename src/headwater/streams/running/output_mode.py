"""Which rows a plan can give, and what tells them apart where one replaces another.

This file alone decides whether a plan is run in append mode, in which each row is final, or in
update mode, in which each is the newest of its group; and of which columns its groups are. It is
pure: it reads the text that Spark prints of an analysed plan, in which each column has a number
and one that carries a watermark says so.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headwater.streams.running.plan_tree import (
    Node,
    grouped_by,
    items_of,
    maybe_aggregated,
    maybe_tree,
)
from headwater.streams.running.plans import Operator

APPEND: Final = "append"
UPDATE: Final = "update"
COMPLETE: Final = "complete"

_HAS_WATERMARK: Final = re.compile(r"#\d+L?-T\d+ms")
_COLUMN: Final = re.compile(r"(?:(?P<made_of>.*) AS )?(?P<name>.+?)(?P<id>#\d+)L?(?:-T\d+ms)?")
_ITSELF: Final = re.compile(r"[^#()]+(?P<id>#\d+)L?(?:-T\d+ms)?")
# A window of fixed length is told apart by either end.
_END_OF_WINDOW: Final = re.compile(r"window(?P<id>#\d+)(?:-T\d+ms)?\.(?:start|end)")
_MAKES_WINDOWS: Final = "precisetimestampconversion("
# Whose columns are those of what feeds them.
_TRANSPARENT: Final = frozenset(
    {
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Repartition",
        "RepartitionByExpression",
        "SubqueryAlias",
    }
)


class _Column(NamedTuple):
    """A column of a node: its number, or nothing to go by, and of which group column it is."""

    id: str
    group: int | None


def mode_of(analyzed: str) -> str:
    """Return the mode that Spark can run a plan in: append wherever that is possible.

    Spark refuses append mode for an aggregate that it could never hold for final: one without a
    watermark among what it groups by.
    """
    root = maybe_tree(analyzed)
    for node in () if root is None else _all_of(root):
        is_final = node.name != "Aggregate" or _HAS_WATERMARK.search(grouped_by(node.detail))
        if node.streams and not is_final:
            return UPDATE
    return APPEND


def mode_noted(mode: str) -> list[Operator]:
    """Return what a checkpoint has to remember of the mode.

    State that was kept for one mode is of no use to the other: groups that do not change any more
    would never be written in update mode, and all once more in append mode.
    """
    return [Operator(f"{mode} mode", "")] if mode != APPEND else []


def maybe_group_columns(analyzed: str, columns: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns that tell groups apart; None where the plan does not say so plainly.

    Args:
        analyzed: The plan.
        columns: The names of what it gives, in order.
    """
    root = maybe_tree(analyzed)
    found = None if root is None else _maybe_columns(root)
    if found is None or len(found.columns) != len(columns):
        return None
    names: dict[int, str] = {}
    for name, column in zip(columns, found.columns, strict=True):
        if column.group is not None:
            names.setdefault(column.group, name)
    # One that was dropped on the way told groups apart, and the rest does not.
    return tuple(names[group] for group in sorted(names)) if len(names) == found.groups else None


class _Found(NamedTuple):
    columns: list[_Column]
    groups: int


def _all_of(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _all_of(child)


def _maybe_columns(node: Node) -> _Found | None:
    """Return what a node gives, if it is an aggregate or has one below that can be followed."""
    if node.name == "Aggregate":
        return _grouped(node)
    if len(node.children) != 1:
        return None
    below = _maybe_columns(node.children[0])
    if below is None or node.name in _TRANSPARENT:
        return below
    if node.name != "Project":
        return None
    has_windows = any(_MAKES_WINDOWS in each.detail for each in _all_of(node))
    groups = {column.id: column.group for column in below.columns}
    columns = [_projected(item, groups, has_windows=has_windows) for item in items_of(node.detail)]
    return _Found(columns, below.groups)


def _grouped(node: Node) -> _Found | None:
    found = maybe_aggregated(node.detail)
    if not node.streams or found is None:
        return None
    by, results = found
    columns = []
    for item in results:
        named = _COLUMN.fullmatch(item)
        made_of = item if named is None or named["made_of"] is None else named["made_of"]
        group = by.index(made_of) if made_of in by else None
        columns.append(_Column("" if named is None else named["id"], group))
    return _Found(columns, len(by))


def _projected(item: str, groups: dict[str, int | None], *, has_windows: bool) -> _Column:
    found = _COLUMN.fullmatch(item)
    if found is None:
        return _Column("", None)
    made_of = item if found["made_of"] is None else found["made_of"]
    same = _ITSELF.fullmatch(made_of)
    if same is None and has_windows:
        same = _END_OF_WINDOW.fullmatch(made_of)
    return _Column(found["id"], None if same is None else groups.get(same["id"]))
