"""What sources of a file are told, without Spark."""

from pathlib import Path

import pytest

from headwater.streams.running import definitions
from headwater.streams.running.errors import DefinitionError

FILE = """
from pathlib import Path
from pyspark.sql.connect.streaming.readwriter import DataStreamReader
options = {"startingOffsets": "earliest", "startingTimestamp": "7"}
reader = DataStreamReader(None).format("headwater").options(**options)
reader._df = lambda plan: plan
reader.load()
Path(__file__).with_suffix(".txt").write_text(repr(sorted(reader._options.items())))
"""


def test_sources_of_spark_connect_are_told_too(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    path = tmp_path / "file.py"
    path.write_text(FILE)
    with pytest.raises(DefinitionError, match="defines no pipeline"):
        definitions.load(path, source_options={"startingTimestamp": "99"})
    told = path.with_suffix(".txt").read_text()
    assert told == repr([("startingOffsets", "earliest"), ("startingTimestamp", "99")])
    with pytest.raises(DefinitionError, match="defines no pipeline"):
        definitions.load(path)
    assert "('startingTimestamp', '7')" in path.with_suffix(".txt").read_text(), "for once only"
