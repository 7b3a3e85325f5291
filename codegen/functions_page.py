"""The page of the reference with the functions for streams.

This file alone decides how a function looks on paper: its arguments with their defaults, and what
its docstring says. It is part of what `codegen.reference_pages` writes.
"""

import inspect
import re
from collections.abc import Callable, Iterator

import headwater as hw
from headwater import functions as hf

_INTRODUCTION = """\
`hf` is `headwater.functions`, `hw` is `headwater`. What works on a DataFrame is for
`DataFrame.transform`, as in `rows.transform(hf.watermark("at", "10 seconds"))`. A length of time is
a text ("90 seconds", "1.5 hours", "1 day") or a `timedelta`.

`hf.first`, `hf.last`, `hf.max`, `hf.min`, `hf.sum` and their like are measures, for `hf.window` and
`hf.aggregate` alone: they are not Spark's functions of these names."""

_PARTS = {
    "Time": ("hf.watermark", "hf.clamp", "hf.true_time"),
    "Windows and groups": ("hf.window", "hf.aggregate", "hf.top", "hf.stateful"),
    "Late events": ("hf.drop", "hf.divert", "hf.correct"),
    "Measures": tuple(
        f"hf.{name}"
        for name in (
            *("count", "sum", "avg", "min", "max", "variance", "stddev"),
            *("distinct", "approx_distinct", "percentile", "heavy_hitters"),
            *("first", "last", "collect"),
        )
    ),
    "Joins": ("hf.join_interval", "hf.join_asof", "hf.join_latest", "hf.join_tables"),
    "Tables, sessions, pipelines": (
        "hw.table",
        "hw.tables",
        "hw.session",
        "hw.pipeline",
        "hw.topic",
    ),
    "Formats": tuple(
        f"hf.{name}"
        for name in (
            *("json", "avro", "protobuf", "to_json", "to_avro", "to_protobuf"),
            "with_dead_letters",
        )
    ),
}
_MODULES = {"hf": hf, "hw": hw}
_SECTION = re.compile(r"^(Args|Raises|Returns):$")
_ITEM = re.compile(r"^ {4}(\w[\w, ]*): (.*)$")
_TITLES = {"Args": "Arguments:", "Raises": "Raises:", "Returns": "Returns:"}


def functions_page() -> Iterator[str]:
    """Return the lines of the page."""
    yield from ("# Functions for streams", "", _INTRODUCTION)
    for title, names in _PARTS.items():
        yield from ("", f"## {title}")
        for name in names:
            module, _, own = name.partition(".")
            yield from ("", *_function(name, getattr(_MODULES[module], own)))


def _function(name: str, function: Callable[..., object]) -> Iterator[str]:
    yield from (f"### `{name}`", "", "```text", f"{name}{_arguments(function)}", "```", "")
    yield from _said(inspect.getdoc(function) or "")


def _arguments(function: Callable[..., object]) -> str:
    """Return arguments and defaults; types stand in what is said of them, as far as they matter."""
    signature = inspect.signature(function)
    plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=signature.empty))
    return text.replace(repr(hf.drop()), "hf.drop()")


def _said(text: str) -> Iterator[str]:
    """Return a docstring as Markdown: arguments and errors become lists."""
    section = ""
    for line in text.splitlines():
        if found := _SECTION.match(line):
            section = found[1]
            yield from (_TITLES[section], "")
        elif section == "Returns":
            yield line.strip()
        elif section and (item := _ITEM.match(line)):
            yield f"- `{item[1]}`: {item[2]}"
        elif section:
            yield f"  {line.strip()}".rstrip()
        else:
            yield line
