"""Which source wins, and what is remembered of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.settings import BROKER_SETTINGS, load_settings, variable_for


def written(folder: Path, text: str, name: str = "headwater.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def failure(**sources: object) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    return caught.value


def test_flags_beat_the_environment_beats_files_beat_defaults(tmp_path: Path) -> None:
    first = written(
        tmp_path,
        """
        [broker]
        num.partitions = 2
        log.retention.ms = "3d"
        log.segment.bytes = "64MiB"
        auto.create.topics.enable = false
        """,
    )
    second = written(tmp_path, '[broker]\nlog.segment.bytes = "32MiB"\n', "more.toml")
    loaded = load_settings(
        {"num.partitions": "4", "log.dirs": None},
        {"HEADWATER_NUM_PARTITIONS": "3", "HEADWATER_LOG_RETENTION_MS": "1h", "PATH": "/bin"},
        [first, second],
    )

    settings = loaded.settings
    assert (
        settings.num_partitions,
        settings.log_retention_ms,
        settings.log_segment_bytes,
    ) == (4, 3_600_000, 32 << 20)
    assert not settings.auto_create_topics_enable
    shown = {line.name: line for line in loaded.show()}
    assert set(shown) == set(BROKER_SETTINGS)
    assert shown["num.partitions"].origin == "flag num.partitions"
    assert shown["log.retention.ms"].origin == "HEADWATER_LOG_RETENTION_MS"
    assert shown["log.segment.bytes"].origin == second
    assert shown["auto.create.topics.enable"].origin == first
    assert shown["node.id"].origin == "default"
    assert shown["log.retention.ms"].value == "3600000"


def test_a_name_that_continues_another_is_quoted(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '[broker]\n"headwater.overflow" = "drop"\n"headwater.overflow.bytes" = "1GiB"\n',
    )
    defaults = load_settings(files=[path]).settings.topic_defaults()
    assert (defaults.headwater_overflow, defaults.headwater_overflow_bytes) == ("drop", 1 << 30)

    unquoted = written(
        tmp_path, '[broker]\nheadwater.overflow = "drop"\nheadwater.overflow.bytes = 1\n'
    )
    assert "quoted" in failure(files=[unquoted]).hint


@pytest.mark.parametrize(
    "text, message, hint",
    [
        ("[broker]\nnum.partition = 1", "did you mean num.partitions?", "config show"),
        ("[broker]\nnum.partitions = 0", "Value must be at least 1", "1 or more"),
        ("[broker]\nlog.retention.ms = '3 weeks'", "the unit must be one of", "a number"),
        ("[brokers]\n", "unknown table or key brokers; did you mean broker?", "[broker]"),
        ("broker = 1", "must be a table", ""),
        ("[broker", "not valid TOML", "quoted"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_the_way_out(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    path = written(tmp_path, text)
    error = failure(files=[path])
    assert error.message.startswith(path)
    assert message in error.message
    assert hint in error.hint


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    assert "does not exist" in failure(files=[str(tmp_path / "none.toml")]).message
    assert "cannot read" in failure(files=[str(tmp_path)]).message
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "cannot read" in failure(files=[str(tmp_path / "binary.toml")]).message


def test_settings_of_several_sources_that_contradict_each_other() -> None:
    error = failure(
        flags={"queued.max.request.bytes": "1MiB"}, env={"HEADWATER_NUM_PARTITIONS": "1"}
    )
    assert "HEADWATER_NUM_PARTITIONS, flag queued.max.request.bytes" in error.message


def test_variables_of_others_are_left_alone_and_misspelt_ones_are_told() -> None:
    loaded = load_settings(
        env={"HEADWATER_NUM_PARTITION": "3", "HEADWATER_PEERS": "required", "NUM_PARTITIONS": "9"}
    )
    assert loaded.settings.num_partitions == 1
    assert loaded.warnings == (
        "HEADWATER_NUM_PARTITION is no setting; did you mean HEADWATER_NUM_PARTITIONS?",
    )


def test_every_setting_has_a_variable_of_its_own() -> None:
    assert variable_for("log.retention.ms") == "HEADWATER_LOG_RETENTION_MS"
    assert variable_for("headwater.overflow") == "HEADWATER_OVERFLOW"
    assert len({variable_for(name) for name in BROKER_SETTINGS}) == len(BROKER_SETTINGS)


def test_importing_settings_loads_nothing_heavy() -> None:
    """``headwater --help`` has 0.3 s for everything."""
    program = (
        "import sys, headwater.base.settings\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"asyncio", "ssl", "pydantic", "numpy", "lz4", "cramjam"} & set(done.stdout.split())
