"""A plan as Spark prints it, as a tree.

This file alone decides how the drawing is read: which line is a node, which node feeds which, and
where a list in a node's text has its items. What nodes mean is for others to say. It is pure, and
Spark's text has no grammar: a bracket in somebody's literal may look like the plan's own.
"""

import re
from typing import Final, NamedTuple

_NODE: Final = re.compile(
    r"^(?P<branch>[ :]*[+:]- |)(?P<marks>[~!']*)(?P<name>\w+)\s?(?P<detail>.*)$"
)
_BETWEEN_LISTS: Final = "], ["


class Node(NamedTuple):
    """One operator.

    Attributes:
        name: What Spark calls it.
        detail: The rest of its line.
        streams: Whether it is marked as streaming.
        children: Those that feed it.
    """

    name: str
    detail: str
    streams: bool
    children: list["Node"]


def maybe_tree(text: str) -> Node | None:
    """Read the drawing: each node stands three characters to the right of the one that it feeds."""
    above: list[Node] = []
    for line in text.splitlines():
        found = _NODE.match(line)
        if found is None:
            continue
        # Columns stand before the root, which streams; texts with line breaks go on at the left.
        if not found["branch"] and (above or "~" not in found["marks"]):
            continue
        node = Node(found["name"], found["detail"], "~" in found["marks"], [])
        depth = len(found["branch"]) // 3
        del above[depth:]
        if above:
            above[-1].children.append(node)
        above.append(node)
    return above[0] if above else None


def lists_of(text: str) -> list[str]:
    """Return the lists in brackets that stand next to each other."""
    return [each for each in items_of(f"[{text}]") if each.startswith("[")]


def items_of(text: str) -> list[str]:
    """Return the items of a list, which may have commas of their own in parentheses."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    found, depth, begin = [], 0, 0
    for place, letter in enumerate(inner):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            found.append(inner[begin:place].strip())
            begin = place + 1
    return [*found, inner[begin:].strip()] if inner else []


def maybe_aggregated(detail: str) -> tuple[list[str], list[str]] | None:
    """Return what an aggregate groups by and what it gives, or None where that cannot be read."""
    found = [items_of(each) for each in lists_of(detail)[:2]]
    # Spark leaves a list out that is empty: what is grouped by nothing has one.
    if len(found) == 1 and _BETWEEN_LISTS not in detail:
        return [], found[0]
    return (found[0], found[1]) if len(found) > 1 else None


def grouped_by(detail: str) -> str:
    """Return what an aggregate groups by, as one text, which can be read in any case."""
    by, between, _ = detail.partition(_BETWEEN_LISTS)
    return by if between else ""
