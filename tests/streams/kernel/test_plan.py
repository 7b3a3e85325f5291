"""What is written down of an operator, to be compared with the state that a checkpoint has."""

from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame

from headwater.streams.kernel.plan import Prepared, fingerprint
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.running import RunningGroups

VALUES = pa.schema([("c0", pa.int64()), ("c1", pa.int64())])
SUMS = [aggregation("sum", name, pa.int64()) for name in VALUES.names]


def found(*, keys: tuple[str, ...], names: tuple[str, ...]) -> dict[str, str]:
    types = tuple(pa.string() for _ in keys)
    frame = cast("DataFrame", None)
    prepared = Prepared(frame, pa.schema([]), keys, types, VALUES, None, None)
    return fingerprint(RunningGroups(SUMS, VALUES), [prepared], buckets=4, names=names)


def test_names_that_change_places_are_seen() -> None:
    before = found(keys=("a", "b"), names=("price", "tax"))

    assert before == found(keys=("a", "b"), names=("price", "tax"))
    assert before != found(keys=("b", "a"), names=("price", "tax"))
    assert before != found(keys=("a", "b"), names=("tax", "price"))


def test_it_is_written_in_words() -> None:
    written = found(keys=("shop",), names=("price", "tax"))

    assert written["operator"] == "RunningGroups"
    assert written["number of buckets"] == "4"
    assert written["key 1"] == "shop (string)"
    assert written["value 2"] == "int64"
    assert written["result 2"] == "tax"
    assert "sum of c0" in written["aggregates"]
