"""The way of the data through a plan, in plain words.

This file alone decides what each step of a plan is called, what is told of it and what is left out:
what our own formats add, and what Spark adds by itself. It is pure: it reads the text that Spark
prints of an analysed plan, and shows what it does not know in Spark's own words.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headwater.streams.running.plan_tree import (
    Node,
    items_of,
    lists_of,
    maybe_aggregated,
    maybe_tree,
)
from headwater.streams.running.plans import topics_read

_IDS = re.compile(r"#\d+L?(?:-T\d+ms)?")
_ALIAS = re.compile(r"(.*) AS (\w+)", re.DOTALL)
_OURS = "__hw_"
_DECODED = "__hw_decoded"
_WINDOW = re.compile(r"precisetimestampconversion\((\w+),")
# Spark tells windows in microseconds; the first is how far they are apart, the last their length.
_WINDOW_LENGTHS = re.compile(r"[%+] (\d{3,})")
_LITERAL_CAST = re.compile(r"cast\((-?[\d.]+) as \w+\)")
_NULL_TEST = re.compile(r"is(not)?null\(([\w.]+)\)")
_COMPARISON = re.compile(r"(?<![\w)])\(([^(),]*(?:[=<>]| is null| is not null)[^(),]*)\)")
_STATEFUL = re.compile(r"Aggregate|Deduplicate\w*|GlobalLimit|\w*WithState\w*")
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


class Step(NamedTuple):
    """One step.

    Attributes:
        depth: How many joins and unions are still between it and the end.
        verb: What is done.
        text: To what, and how.
        keeps_state: Whether it remembers something from batch to batch.
    """

    depth: int
    verb: str
    text: str
    keeps_state: bool = False


def steps(analyzed: str) -> list[Step]:
    """Return the steps of a plan, in the order in which the data comes along."""
    root = maybe_tree(analyzed)
    return list(_walk(root, 0)) if root is not None else []


def _walk(node: Node, depth: int) -> Iterator[Step]:
    if not node.streams:
        leaf = node
        while leaf.children:
            leaf = leaf.children[0]
        yield Step(depth, "read", f"rows that do not stream ({leaf.name})")
        return
    inputs = node.children
    for child in inputs:
        yield from _walk(child, depth + (len(inputs) > 1))
    told = _told(node)
    if told is not None:
        both = node.name == "Join" and all(child.streams for child in inputs)
        yield Step(depth, *told, keeps_state=both or bool(_STATEFUL.fullmatch(node.name)))


def _told(node: Node) -> tuple[str, str] | None:
    """Return verb and text of a step; nothing for one that says nothing to people."""
    if node.name.startswith("Streaming"):
        return "read", ", ".join(topics_read(f"{node.name} {node.detail}")) or _format(node.detail)
    detail = _IDS.sub("", node.detail)
    if "precisetimestampconversion(" in detail:
        return "window", _window(detail)
    teller = _TELLERS.get(node.name)
    if teller is not None:
        # Spark's text has no grammar: a bracket in somebody's literal may look like the plan's own.
        with contextlib.suppress(ValueError, IndexError):
            return teller(detail)
    if "Map" in node.name or "WithState" in node.name:
        return "call", _call(detail)
    return node.name.lower(), _plain(detail)


def _format(detail: str) -> str:
    """Return which kind of source it is."""
    words = [word.strip() for word in detail.split(",")]
    return words[1] if len(words) > 1 else detail


def _window(detail: str) -> str:
    column = _WINDOW.search(detail)
    lengths = [int(each) for each in _WINDOW_LENGTHS.findall(detail)]
    told = column[1] if column else ""
    if not lengths:
        return told
    told += f", {_span(lengths[-1])}"
    return told if lengths[0] == lengths[-1] else f"{told}, every {_span(lengths[0])}"


def _span(length_us: int) -> str:
    for unit, seconds in _UNITS:
        amount, rest = divmod(length_us, seconds * 1_000_000)
        if amount and not rest:
            return f"{amount} {unit}{'' if amount == 1 else 's'}"
    return f"{length_us:,} microseconds"


def _filter(detail: str) -> tuple[str, str] | None:
    # Spark itself adds a test for a missing time below a window.
    if _OURS in detail or re.fullmatch(r"isnotnull\(\w+\)", detail):
        return None
    return "filter", _plain(detail)


def _project(detail: str) -> tuple[str, str] | None:
    items = items_of(detail)
    made = [found[2] for each in items if _DECODED in each and (found := _ALIAS.fullmatch(each))]
    decoded = [each for each in made if not each.startswith(_OURS)]
    if decoded:
        return "decode", ", ".join(decoded)
    return None if _OURS in detail or not items else ("select", _named(items))


def _named(items: list[str]) -> str:
    """Return columns, those that are made here first."""
    made, kept = [], []
    for each in items:
        alias = _ALIAS.fullmatch(each)
        if alias is None or _plain(alias[1]) == alias[2]:
            kept.append(_plain(alias[2] if alias else each))
        else:
            made.append(f"{alias[2]} = {_plain(alias[1])}")
    return ", ".join(made + kept)


def _aggregate(detail: str) -> tuple[str, str]:
    found = maybe_aggregated(detail)
    if found is None:
        raise ValueError(detail)
    keys, results = found
    made = [each for each in results if each not in keys]
    by = f"by {_named(keys)}: " if keys else ""
    return "group", f"{by}{_named(made)}"


def _join(detail: str) -> tuple[str, str]:
    kind, _, condition = detail.partition(", ")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()
    return "join", f"{words} on {_plain(condition)}" if condition else words


def _watermark(detail: str) -> tuple[str, str]:
    parts = detail.split(", ")
    delay = re.sub(r"^1 (\w+)s$", r"1 \1", parts[-1])
    return "watermark", f"{parts[-2].partition(':')[0]}, {delay}"


def _call(detail: str) -> str:
    function = detail.partition("(")[0]
    lists = lists_of(detail.partition(")")[2])
    return f"{function}, gives {_named(items_of(lists[0]))}" if lists else function


def _first_list(verb: str, preposition: str) -> Callable[[str], tuple[str, str]]:
    def tell(detail: str) -> tuple[str, str]:
        lists = lists_of(detail)
        return verb, f"{preposition}{_named(items_of(lists[0]))}" if lists else _plain(detail)

    return tell


_TELLERS: dict[str, Callable[[str], tuple[str, str] | None]] = {
    "Aggregate": _aggregate,
    "CollectMetrics": lambda _: None,
    "Deduplicate": _first_list("drop", "duplicates by "),
    "DeduplicateWithinWatermark": _first_list("drop", "duplicates within the watermark by "),
    "EventTimeWatermark": _watermark,
    "Filter": _filter,
    "Generate": lambda detail: ("expand", _plain(items_of(f"[{detail}]")[0])),
    "GlobalLimit": lambda detail: ("limit", _plain(detail)),
    "Join": _join,
    "LocalLimit": lambda _: None,
    "Project": _project,
    "Repartition": lambda detail: ("spread", f"over {detail.partition(',')[0]} partitions"),
    "RepartitionByExpression": _first_list("spread", "by "),
    "SubqueryAlias": lambda _: None,
    "Union": lambda _: ("union", "both"),
}


def _plain(text: str) -> str:
    """Return an expression without what Spark needs and people do not."""
    text = _LITERAL_CAST.sub(r"\1", " ".join(text.split()))
    text = _NULL_TEST.sub(lambda found: f"{found[2]} is {'not ' if found[1] else ''}null", text)
    text = text.replace(" AND ", " and ").replace(" OR ", " or ")
    text = _COMPARISON.sub(_unwrapped, text)
    if text.startswith("(") and len(items_of(text)) == 1 and _closes_at_end(text):
        text = text[1:-1]
    return text


def _unwrapped(found: re.Match[str]) -> str:
    inner = found[1]
    return found[0] if " and " in inner or " or " in inner else inner


def _closes_at_end(text: str) -> bool:
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1
    return False
