"""Formats where Spark lets nobody look at columns."""

import pytest
from pyspark.errors import AnalysisException

from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.looking import looking


@looking
def look(message: str, *, within: bool = False) -> None:
    error = AnalysisException(message)
    if within:
        raise FormatError("not a schema") from error
    raise error


@pytest.mark.parametrize("within", [True, False])
def test_a_query_function_is_told_where_to_decode(within: bool) -> None:
    with pytest.raises(FormatError, match="must not") as raised:
        look("[ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION] not allowed", within=within)
    assert "outside of the function" in raised.value.hint


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(AnalysisException, match="no such column"):
        look("no such column")
    with pytest.raises(FormatError, match="not a schema"):
        look("no such type", within=True)
