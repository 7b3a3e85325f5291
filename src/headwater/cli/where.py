"""`--where`: a SQL condition as a function of a record.

This file alone decides what a condition means: Spark's grammar, SQL's three truth values (a missing
field is NULL, and only TRUE lets a record through), fields of JSON keys and values by dots.

    key, value              as text; key.a.b and value.a.b[0] when they hold JSON
    headers.x               the last header of that name, as text; headers['a-b'] is one, too
    topic, partition, offset
    timestamp               milliseconds; compares with '2026-11-15T10:00' too

A number compares with a text that is one. What cannot be compared is NULL, never an error: one odd
record does not end a search.
"""

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
import sqlglot
from sqlglot import errors
from sqlglot import expressions as sql

from headwater.delivery.client.consumer import Message

COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")

Evaluate = Callable[["_Row"], Any]


def compile_where(text: str) -> Callable[[Message], bool]:
    """Turn a condition into a function.

    Raises:
        click.UsageError: It cannot be read, or asks for what a record does not have.
    """
    try:
        tree = sqlglot.parse_one(text, read="spark")
    except errors.SqlglotError as error:
        first = re.sub(r"\x1b\[\d+m", "", str(error)).split("\n", 1)[0]
        place = _without_class_names(first)
        raise click.UsageError(f"--where cannot be read: {place}") from None
    evaluate = _compile(tree)

    def matches(message: Message) -> bool:
        return evaluate(_Row(message)) is True

    return matches


# --- a record as SQL sees it --------------------------------------------------------------------

_UNREAD = object()


class _Row:
    """One record; JSON is read once, and only if somebody asks for a field."""

    __slots__ = ("_json", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._json: dict[str, Any] = {}

    def text(self, column: str) -> str | None:
        data = self.message.key if column == "key" else self.message.value
        return None if data is None else data.decode("utf-8", "replace")

    def document(self, column: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        found = self._json.get(column, _UNREAD)
        if found is _UNREAD:
            try:
                found = json.loads(self.text(column) or "null")
            except ValueError:
                found = None
            self._json[column] = found
        return found

    def header(self, name: str) -> str | None:
        for key, value in reversed(self.message.headers):
            if key == name:
                return None if value is None else value.decode("utf-8", "replace")
        return None


_PLAIN_COLUMNS: Mapping[str, Evaluate] = {
    "key": lambda row: row.text("key"),
    "value": lambda row: row.text("value"),
    "topic": lambda row: row.message.topic,
    "partition": lambda row: row.message.partition,
    "offset": lambda row: row.message.offset,
    "timestamp": lambda row: row.message.timestamp_ms,
}


# --- columns ------------------------------------------------------------------------------------


def _column(path: Sequence[str | int]) -> Evaluate:
    column = str(path[0]).lower()
    fields = path[1:]
    if column == "headers" and len(fields) == 1:
        name = str(fields[0])
        return lambda row: row.header(name)
    if column in {"key", "value"} and fields:
        return lambda row: _dig(row.document(column), fields)
    if not fields and column in _PLAIN_COLUMNS:
        return _PLAIN_COLUMNS[column]
    shown = ".".join(map(str, path))
    raise click.UsageError(
        f"--where: a record has no {shown!r}; there are key, value, value.FIELD, headers.NAME or "
        "headers['a-name'], topic, partition, offset, timestamp (texts stand in 'single quotes')"
    )


def _dig(found: Any, fields: Sequence[str | int]) -> Any:  # noqa: ANN401 - whatever JSON holds
    for field in fields:
        if isinstance(found, dict):
            found = found.get(str(field))
        elif isinstance(found, list) and isinstance(field, int) and -1 < field < len(found):
            found = found[field]
        else:
            return None
    return found


def _path(node: sql.Expr) -> list[str | int]:
    """Return the way to a field: a column's parts, then dots and brackets behind it."""
    if isinstance(node, sql.Column):
        return [part.name for part in node.parts]
    if isinstance(node, sql.Dot):
        return [*_path(node.this), node.expression.name]
    if isinstance(node, sql.Bracket) and len(node.expressions) == 1:
        (index,) = node.expressions
        if index.is_string or index.is_int:
            return [*_path(node.this), index.name if index.is_string else int(index.name)]
    raise click.UsageError(f"--where: {node.sql(dialect='spark')!r} is no field of a record")


# --- expressions --------------------------------------------------------------------------------


def _compile(node: sql.Expr) -> Evaluate:
    for kind, build in _BUILDERS.items():
        if isinstance(node, kind):
            return build(node)
    shown = node.sql(dialect="spark")
    raise click.UsageError(f"--where: {shown!r} is not supported (use headwater tail --json | jq)")


def _literal(node: sql.Expr) -> Evaluate:
    value: object = node.name
    if not node.is_string:
        value = float(node.name) if re.search(r"[.eE]", node.name) else int(node.name)
    return lambda _: value


def _and(node: sql.Expr) -> Evaluate:
    left, right = _compile(node.this), _compile(node.expression)

    def evaluate(row: _Row) -> bool | None:
        first = _truth(left(row))
        if first is False:
            return False
        second = _truth(right(row))
        return False if second is False else None if first is None or second is None else True

    return evaluate


def _or(node: sql.Expr) -> Evaluate:
    left, right = _compile(node.this), _compile(node.expression)

    def evaluate(row: _Row) -> bool | None:
        first = _truth(left(row))
        if first is True:
            return True
        second = _truth(right(row))
        return True if second is True else None if first is None or second is None else False

    return evaluate


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _not(node: sql.Expr) -> Evaluate:
    inner = _compile(node.this)

    def evaluate(row: _Row) -> bool | None:
        value = _truth(inner(row))
        return None if value is None else not value

    return evaluate


def _is(node: sql.Expr) -> Evaluate:
    left, right = _compile(node.this), _compile(node.expression)
    return lambda row: left(row) is right(row)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[sql.Expr], Evaluate]:
    def build(node: sql.Expr) -> Evaluate:
        left, right = _sides(node.this, node.expression)
        return lambda row: _compare(compare, left(row), right(row))

    return build


def _sides(*nodes: sql.Expr) -> list[Evaluate]:
    """Compile what is compared with each other; beside a timestamp a text is a moment."""
    moments = any(isinstance(node, sql.Column) and _path(node) == ["timestamp"] for node in nodes)
    return [_moment(node.name) if moments and node.is_string else _compile(node) for node in nodes]


def _moment(text: str) -> Evaluate:
    try:
        moment_ms = int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise click.UsageError(f"--where: {text!r} is no time; write 2026-11-15T10:00") from None
    return lambda _: moment_ms


def _compare(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:  # noqa: ANN401
    if left is None or right is None:
        return None
    if isinstance(left, str) != isinstance(right, str):
        left, right = _number(left), _number(right)
        if left is None or right is None:
            return None
    try:
        return compare(left, right)
    except (TypeError, ZeroDivisionError):
        return None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(str(value))
    except ValueError:
        return None


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[sql.Expr], Evaluate]:
    def build(node: sql.Expr) -> Evaluate:
        left, right = _compile(node.this), _compile(node.expression)

        def evaluate(row: _Row) -> Any:  # noqa: ANN401 - a number or nothing
            return _compare(compute, _number(left(row)), _number(right(row)))

        return evaluate

    return build


def _between(node: sql.Expr) -> Evaluate:
    value, low, high = _sides(node.this, node.args["low"], node.args["high"])

    def evaluate(row: _Row) -> bool | None:
        found = value(row)
        above = _compare(operator.ge, found, low(row))
        below = _compare(operator.le, found, high(row))
        if above is False or below is False:
            return False
        return None if above is None or below is None else True

    return evaluate


def _in(node: sql.Expr) -> Evaluate:
    value, *choices = _sides(node.this, *node.expressions)

    def evaluate(row: _Row) -> bool | None:
        found = value(row)
        answers = [_compare(operator.eq, found, choice(row)) for choice in choices]
        return True if True in answers else None if None in answers else False

    return evaluate


def _like(flags: re.RegexFlag) -> Callable[[sql.Expr], Evaluate]:
    def build(node: sql.Expr) -> Evaluate:
        value = _compile(node.this)
        if not node.expression.is_string:
            raise click.UsageError("--where: LIKE wants a 'text with % and _'")
        wild = {"%": ".*", "_": "."}
        pattern = "".join(wild.get(each, re.escape(each)) for each in node.expression.name)
        return _matching(re.compile(pattern, flags | re.DOTALL).fullmatch, value)

    return build


def _rlike(node: sql.Expr) -> Evaluate:
    try:
        return _matching(re.compile(node.expression.name).search, _compile(node.this))
    except re.error as error:
        raise click.UsageError(f"--where: bad regular expression: {error}") from None


def _matching(match: Callable[[str], object], value: Evaluate) -> Evaluate:
    def evaluate(row: _Row) -> bool | None:
        found = value(row)
        return None if found is None else match(_text(found)) is not None

    return evaluate


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _function(compute: Callable[[Any], Any]) -> Callable[[sql.Expr], Evaluate]:
    def build(node: sql.Expr) -> Evaluate:
        inner = _compile(node.this)

        def evaluate(row: _Row) -> Any:  # noqa: ANN401 - whatever the function gives
            found = inner(row)
            try:
                return None if found is None else compute(found)
            except (TypeError, ValueError):
                return None

        return evaluate

    return build


def _coalesce(node: sql.Expr) -> Evaluate:
    choices = [_compile(each) for each in (node.this, *node.expressions)]

    def evaluate(row: _Row) -> Any:  # noqa: ANN401 - whatever is there
        found = (choice(row) for choice in choices)
        return next((each for each in found if each is not None), None)

    return evaluate


def _concatenate(node: sql.Expr) -> Evaluate:
    left, right = _compile(node.this), _compile(node.expression)

    def evaluate(row: _Row) -> str | None:
        first, second = left(row), right(row)
        return None if first is None or second is None else _text(first) + _text(second)

    return evaluate


_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "INT": lambda value: int(float(value)),
    "BIGINT": lambda value: int(float(value)),
    "DOUBLE": float,
    "FLOAT": float,
    "TEXT": _text,
    "VARCHAR": _text,
    "BOOLEAN": lambda value: {"true": True, "false": False}.get(_text(value).lower()),
}


def _cast(node: sql.Expr) -> Evaluate:
    target = node.args["to"].this.name
    if target.startswith("TIMESTAMP") and node.this.is_string:
        return _moment(node.this.name)
    if target not in _CASTS:
        raise click.UsageError(f"--where: cannot cast to {target}")
    return _function(_CASTS[target])(node)


_BUILDERS: Mapping[type[sql.Expr], Callable[[Any], Evaluate]] = {
    sql.Column: lambda node: _column(_path(node)),
    sql.Dot: lambda node: _column(_path(node)),
    sql.Bracket: lambda node: _column(_path(node)),
    sql.Literal: _literal,
    sql.Boolean: lambda node: lambda _: bool(node.this),
    sql.Null: lambda _: lambda _: None,
    sql.Paren: lambda node: _compile(node.this),
    sql.And: _and,
    sql.Or: _or,
    sql.Not: _not,
    sql.Is: _is,
    sql.EQ: _comparison(operator.eq),
    sql.NEQ: _comparison(operator.ne),
    sql.GT: _comparison(operator.gt),
    sql.GTE: _comparison(operator.ge),
    sql.LT: _comparison(operator.lt),
    sql.LTE: _comparison(operator.le),
    sql.Between: _between,
    sql.In: _in,
    sql.Like: _like(re.RegexFlag.NOFLAG),
    sql.ILike: _like(re.RegexFlag.IGNORECASE),
    sql.RegexpLike: _rlike,
    sql.Add: _arithmetic(operator.add),
    sql.Sub: _arithmetic(operator.sub),
    sql.Mul: _arithmetic(operator.mul),
    sql.Div: _arithmetic(operator.truediv),
    sql.Mod: _arithmetic(operator.mod),
    sql.Neg: _function(operator.neg),
    sql.DPipe: _concatenate,
    sql.Lower: _function(lambda value: _text(value).lower()),
    sql.Upper: _function(lambda value: _text(value).upper()),
    sql.Length: _function(lambda value: len(_text(value))),
    sql.Abs: _function(abs),
    sql.Coalesce: _coalesce,
    sql.Cast: _cast,
}


def _without_class_names(message: str) -> str:
    """Say what is missing in the user's words; the parser names its own classes."""
    return re.sub(
        r"Required keyword: '\w+' missing for <class '[^']*'>", "something is missing", message
    )
