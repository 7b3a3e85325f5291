"""Which settings hold after a start that comes with others than those of the run before."""

import pytest

from headwater.base.errors import KafkaError
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.configs import Change, Described, Operation, Source
from headwater.delivery.broker.topics import NewTopic
from tests.delivery.dialects.kafka.desk import Desk

MIB = 1 << 20


def alter(desk: Desk, **changes: str) -> None:
    """Set broker settings of this node; an underscore stands for a dot."""
    asked = [
        Change(name.replace("_", "."), Operation.SET, value) for name, value in changes.items()
    ]
    desk.broker.configs.alter_broker("1", asked, keep_others=True, validate_only=False)


def told(desk: Desk, name: str) -> Described:
    (found,) = (
        each for each in desk.broker.configs.describe_broker("1") if each.setting.name == name
    )
    return found


@pytest.mark.parametrize(
    "before, changes, topic, after, left_out",
    [
        (
            {"log.cleaner.min.compaction.lag.ms": "5000"},
            {"log.cleaner.min.compaction.lag.ms": "0"},
            {"max.compaction.lag.ms": "1000"},
            {"log.cleaner.min.compaction.lag.ms": "5000"},
            [],
        ),
        (
            {"headwater.overflow.bytes": "1000000"},
            {"headwater.overflow": "drop"},
            {},
            {},
            ["headwater.overflow=drop"],
        ),
        (
            {},
            {"log.cleaner.max.compaction.lag.ms": "1000"},
            {},
            {"log.cleaner.min.compaction.lag.ms": "5000"},
            ["log.cleaner.max.compaction.lag.ms=1000"],
        ),
        (
            {"log.cleaner.dedupe.buffer.size": str(8 * MIB)},
            {"log.cleaner.threads": "2", "log.retention.ms": "7"},
            {},
            {"log.cleaner.dedupe.buffer.size": str(MIB)},
            ["log.cleaner.threads=2"],
        ),
        (
            {},
            {"headwater.overflow": "drop", "headwater.overflow.bytes": "1000"},
            {},
            {"log.cleaner.dedupe.buffer.size": str(MIB)},
            [],
        ),
    ],
)
def test_what_the_broker_has_accepted_stops_no_start(
    before: dict[str, str],
    changes: dict[str, str],
    topic: dict[str, str],
    after: dict[str, str],
    left_out: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(before)
    desk.broker.topics.create([NewTopic("t", 1, {})])
    alter(desk, **changes)
    desk.broker.configs.alter_topic(
        "t",
        [Change(name, Operation.SET, value) for name, value in topic.items()],
        keep_others=True,
        validate_only=False,
    )
    desk.broker.store.close()
    desk.settings = BrokerSettings.parse(after)
    caplog.clear()
    desk.start()

    said = [record.getMessage() for record in caplog.records]
    warnings = [text for text in said if "holds instead of" not in text]
    assert [text.split()[1].rstrip(",") for text in warnings] == left_out
    assert all("delete-config" in text for text in warnings)
    assert set(desk.broker.store.broker_configs) == {f"1:{name}" for name in changes}
    for name, value in changes.items():
        holds = f"{name}={value}" not in left_out
        assert (told(desk, name).value == value) is holds
        assert (told(desk, name).source == Source.DYNAMIC_BROKER) is holds


def test_an_override_that_was_left_out_hinders_no_other_change() -> None:
    desk = Desk({"headwater.overflow.bytes": "1000000"})
    alter(desk, headwater_overflow="drop")
    desk.settings = BrokerSettings()
    desk.crash()

    alter(desk, log_retention_ms="9")
    assert told(desk, "headwater.overflow").value == "buffer"
    with pytest.raises(KafkaError, match="needs a bound"):
        alter(desk, headwater_overflow="drop")
    alter(desk, headwater_overflow_bytes="5")
    assert told(desk, "headwater.overflow").value == "drop"
    desk.crash()
    assert told(desk, "headwater.overflow").value == "drop"


def test_a_setting_that_gives_way_to_one_of_the_running_broker_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    alter(desk, log_retention_ms="7", max_connections="100", message_max_bytes="5000")
    given = {"log.retention.ms": "9", "max.connections": "100", "num.partitions": "3"}
    desk.settings = BrokerSettings.parse(given)
    desk.crash()

    (line,) = [each.getMessage() for each in caplog.records if "running broker" in each.message]
    assert line.startswith("log.retention.ms is 7, which was set on the running broker")
    assert "instead of 9" in line
    assert told(desk, "log.retention.ms").value == "7"
