"""Columns that people name, and that are not there.

This file alone decides how that is told: which column it is, which one was meant, which ones there
are. Spark's own words for it come with the whole plan.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headwater.base.errors import HeadwaterError
from headwater.base.spelling import suggestion

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_UNRESOLVED: Final = "UNRESOLVED_COLUMN"
_NO_FIELD: Final = "FIELD_NOT_FOUND"


def no_column(
    kind: type[HeadwaterError],
    name: str,
    known: Sequence[str],
    *,
    where: str = "there is",
    why: str = "",
) -> HeadwaterError:
    """Return the error for a column that is not there.

    Args:
        kind: Of which class it is.
        name: The column.
        known: Those that there are; what begins with two underscores is nobody's but ours.
        where: Who has no such column.
        why: What it is wanted for.
    """
    shown = [each for each in known if not each.startswith("__")]
    return kind(
        f"{where} no column {name!r}{why}{suggestion(name, shown)}",
        hint=f"columns are: {', '.join(shown)}",
    )


def names_of(
    rows: "DataFrame", columns: "Sequence[Column]", kind: type[HeadwaterError], *, why: str = ""
) -> list[str]:
    """Return what columns are called, whatever they are made of.

    Args:
        rows: Of what.
        columns: Which.
        kind: The class of the error if one of them needs a column that is not there.
        why: What they are wanted for.

    Raises:
        HeadwaterError: One does.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - `no_column` needs no Spark

    try:
        return rows.select(*columns).columns
    except AnalysisException as error:
        condition = error.getCondition() or ""
        said = error.getMessageParameters() or {}
    if condition.startswith(_UNRESOLVED):
        raise no_column(kind, _plain(said["objectName"]), rows.columns, why=why)
    if condition == _NO_FIELD:
        fields = [_plain(each) for each in said["fields"].split(", ")]
        raise no_column(kind, _plain(said["fieldName"]), fields, why=why)
    # It is another fault: in Spark's own words.
    return rows.select(*columns).columns


def _plain(quoted: str) -> str:
    """Return a name, `a`.`b` in Spark's messages, as people write it."""
    return ".".join(
        part[1:-1].replace("``", "`") if part.startswith("`") else part
        for part in re.findall(r"`(?:[^`]|``)*`|[^.`]+", quoted)
    )
