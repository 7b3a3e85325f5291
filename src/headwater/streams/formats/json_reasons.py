"""Why a text is not the JSON that it should be, in words.

This file alone decides how that is told. It does not decide whether: Spark does, for all records at
once, and only those that it refuses come here.
"""

import json
from collections.abc import Mapping
from typing import Any

from headwater.streams.formats.letters import (
    MISSING_FIELD,
    NOT_JSON,
    NOT_UTF8,
    reason,
)

_WHOLE = {
    "byte": 1 << 7,
    "short": 1 << 15,
    "integer": 1 << 31,
    "long": 1 << 63,
}
_SHOWN_CHARACTERS_MAX = 80
_ROOT = "the value"

SparkType = str | Mapping[str, Any]
"""A type as `StructType.jsonValue()` gives it."""


def why(value: bytes, schema: SparkType, kind: str) -> str:
    """Return the reason, `KIND: detail`.

    Args:
        value: What was refused.
        schema: What was wanted.
        kind: What Spark has found.
    """
    try:
        return _why(value, schema, kind)
    except RecursionError:
        return reason(kind, "nested too deeply to be looked at")


def _why(value: bytes, schema: SparkType, kind: str) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return reason(NOT_UTF8, f"byte {value[error.start]:#04x} at {error.start}: {error.reason}")
    try:
        document = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        return reason(NOT_JSON, f"{error.msg} at character {error.pos}: {_shown(text)}")
    except ValueError as error:
        return reason(NOT_JSON, str(error))
    if kind == MISSING_FIELD:
        return reason(kind, f"{_missing(document, schema) or _ROOT} is missing or null")
    return reason(kind, _mismatch(document, schema, "") or f"does not fit: {_shown(text)}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _shown(text: str) -> str:
    short = text[:_SHOWN_CHARACTERS_MAX]
    return repr(short) + ("..." if len(text) > len(short) else "")


def _missing(document: Any, schema: SparkType) -> str:  # noqa: ANN401 - any JSON
    assert isinstance(schema, Mapping)
    names = [field["name"] for field in schema["fields"] if not field["nullable"]]
    found = document if isinstance(document, dict) else {}
    return ", ".join(name for name in names if found.get(name) is None)


def _mismatch(found: Any, wanted: SparkType, path: str) -> str:  # noqa: ANN401 - any JSON
    """Return the first place where a document is not as the schema wants it, or nothing."""
    if found is None and path:
        return ""
    if isinstance(wanted, Mapping):
        return _inner_mismatch(found, wanted, path)
    is_right = True
    if wanted in _WHOLE:
        limit = _WHOLE[wanted]
        is_right = type(found) is int and -limit <= found < limit
    elif wanted == "boolean":
        is_right = isinstance(found, bool)
    elif wanted in {"float", "double"}:
        # Spark takes these texts for numbers; a list or an object is no member of any set.
        is_text = isinstance(found, str) and found in {"NaN", "Infinity", "-Infinity"}
        is_right = is_text or type(found) in {int, float}
    elif wanted in {"timestamp", "timestamp_ntz", "date"}:
        # Which texts are times is Spark's affair; that this one is not, it has said already.
        is_right = False
    return "" if is_right else f"{path or _ROOT} should be {wanted}: {_shown(json.dumps(found))}"


def _inner_mismatch(found: Any, wanted: Mapping[str, Any], path: str) -> str:  # noqa: ANN401
    where = path or _ROOT
    match wanted["type"]:
        case "struct":
            if not isinstance(found, dict):
                return f"{where} should be an object: {_shown(json.dumps(found))}"
            inner = [
                (found[field["name"]], field["type"], f"{path}.{field['name']}".lstrip("."))
                for field in wanted["fields"]
                if field["name"] in found
            ]
        case "array":
            if not isinstance(found, list):
                return f"{where} should be an array: {_shown(json.dumps(found))}"
            inner = [
                (each, wanted["elementType"], f"{path}[{index}]")
                for index, each in enumerate(found)
            ]
        case "map":
            if not isinstance(found, dict):
                return f"{where} should be an object: {_shown(json.dumps(found))}"
            inner = [(each, wanted["valueType"], f"{path}.{name}") for name, each in found.items()]
        case _:
            return ""
    # Times that are right look as wrong as those that are not: they come last.
    inner.sort(key=lambda each: each[1] in ("timestamp", "timestamp_ntz", "date"))
    return next(filter(None, (_mismatch(*each) for each in inner)), "")
