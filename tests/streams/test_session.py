"""What a session is given, and what is said where Spark cannot be had."""

import importlib.util
import os
import subprocess
import sys

import pytest

from headwater.streams.session import SparkMissingError, session, settings_of


@pytest.mark.parametrize(
    "master, partitions",
    [
        ("local", "1"),
        ("local[3]", "3"),
        ("local[2,4]", "2"),
        ("local[*]", str(os.cpu_count())),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
    ],
)
def test_as_many_shuffle_partitions_as_cores_of_this_machine(
    master: str, partitions: str | None
) -> None:
    assert settings_of(master, {}).get("spark.sql.shuffle.partitions") == partitions


def test_the_callers_settings_win() -> None:
    given = {"spark.ui.enabled": True, "spark.sql.shuffle.partitions": 7, "spark.mine": "x"}
    settings = settings_of("local[2]", given)
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert settings["spark.mine"] == "x"


def test_the_callers_java_options_stand_beside_ours() -> None:
    name = "spark.driver.extraJavaOptions"
    options = settings_of("local", {name: "-Dmine=1"})[name].split()
    assert "-Dmine=1" in options
    assert any(each.startswith("-Dlog4j2.configurationFile=file:") for each in options)


@pytest.mark.parametrize("said, is_hidden", [("hidden", True), ("shown", False), ("", False)])
def test_javas_frames_are_hidden_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, said: str, is_hidden: object
) -> None:
    monkeypatch.setenv("HEADWATER_JAVA_FRAMES", said)
    options = settings_of("local", {})["spark.driver.extraJavaOptions"].split()
    assert ("-Dheadwater.log.throwables=none" in options) is is_hidden


def test_executors_are_told_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", "broker:9092")
    name = "spark.executorEnv.HEADWATER_BOOTSTRAP"
    assert settings_of("spark://host:7077", {})[name] == "broker:9092"


def test_without_pyspark_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SparkMissingError, match="PySpark is not installed") as raised:
        session()
    assert "pip install 'headwater[spark]'" in raised.value.hint


def test_importing_headwater_loads_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, headwater; headwater.session; "
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'numpy', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["pipeline", "topic"])
def test_whatever_needs_pyspark_names_the_command(name: str) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import headwater\n"
        "try:\n"
        f"    headwater.{name}\n"
        "except headwater.HeadwaterError as error:\n"
        "    print(error.hint)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install 'headwater[spark]'" in done.stdout


def test_the_environment_moves_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str | None] = []

    class Builder:
        def config(self, name: str, value: str) -> "Builder":
            given[name] = value
            return self

        def getOrCreate(self) -> None:  # noqa: N802 - Spark's name
            taken.append(given.pop("spark.master", None))

    given: dict[str, str] = {}
    pyspark = pytest.importorskip("pyspark.sql")
    monkeypatch.setattr(pyspark.SparkSession, "builder", Builder())
    monkeypatch.setattr("headwater.streams.session.start_jvm", lambda _: None)
    monkeypatch.setattr("headwater.streams.session._tell_the_broker", lambda _: None)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "HEADWATER_MASTER", "HEADWATER_BOOTSTRAP"):
        monkeypatch.setenv(name, "")
    session()
    session(master="local[3]")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    session()
    session(master="local[3]")
    monkeypatch.setenv("HEADWATER_MASTER", "spark://host:7077")
    session(master="local[3]", bootstrap="b:1")
    expected = ["local[*]", "local[3]", None, "local[3]", "spark://host:7077"]
    assert taken == expected
    assert os.environ["HEADWATER_BOOTSTRAP"] == "b:1"
