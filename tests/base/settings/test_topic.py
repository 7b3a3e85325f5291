"""The configs of a topic, beside those of Kafka."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import TOPIC_SETTINGS, BrokerSettings, Kind, TopicConfig
from tests import peers

OURS = {"headwater.overflow", "headwater.overflow.bytes"}
DIFFERENT_DEFAULTS = {"flush.messages": ("1", "9223372036854775807")}


def refused(**configs: str | None) -> str:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with pytest.raises(KafkaError) as caught:
        TopicConfig.parse(named)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_overrides_lie_over_the_brokers_defaults() -> None:
    defaults = TopicConfig(retention_ms=5, segment_bytes=1 << 20)
    parsed = TopicConfig.parse({"retention.ms": "7", "cleanup.policy": "compact"}, defaults)

    assert (parsed.retention_ms, parsed.segment_bytes) == (7, 1 << 20)
    assert parsed.is_compacted
    assert not parsed.is_deleted
    assert parsed.render("cleanup.policy") == "compact"
    assert parsed.render("preallocate") == "false"


def test_is_durable_unless_told_otherwise() -> None:
    assert TopicConfig().is_durable
    assert not TopicConfig.parse({"flush.messages": "10000"}).is_durable


def test_unknown_names_come_first_and_suggest_the_nearest() -> None:
    message = refused(retention_ms="x", retention_mss="1")
    assert message == "Unknown topic config name: retention.mss; did you mean retention.ms?"
    assert refused(zzz="1") == "Unknown topic config name: zzz"
    assert refused(zzz=None) == "Null value not supported for topic configs: zzz"


def test_values_that_contradict_each_other() -> None:
    assert refused(min_compaction_lag_ms="10", max_compaction_lag_ms="5") == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )
    assert "Tiered Storage functionality is disabled" in refused(remote_storage_enable="true")


def test_throttled_replicas_have_a_form() -> None:
    name = "leader.replication.throttled.replicas"
    for good in ("*", "0:1", "0:1,1:1", ""):
        assert good == TopicConfig.parse({name: good}).render(name)
    with pytest.raises(KafkaError, match=r"Invalid value \[xx\] .* must be the literal '\*'"):
        TopicConfig.parse({name: "xx"})


def test_an_overflow_policy_needs_a_bound_only_when_it_is_asked_for() -> None:
    unbounded = TopicConfig.parse({"headwater.overflow": "drop"})
    with pytest.raises(KafkaError, match=r"set headwater\.overflow\.bytes too"):
        unbounded.check_bounded()
    TopicConfig.parse(
        {"headwater.overflow": "drop", "headwater.overflow.bytes": "1"}
    ).check_bounded()
    TopicConfig().check_bounded()


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_SETTINGS)), st.text(max_size=12), max_size=4))
def test_any_overrides_are_refused_or_can_be_read_back(configs: dict[str, str]) -> None:
    try:
        parsed = TopicConfig.parse(configs)
    except KafkaError:
        assert refused(**{name.replace(".", "_"): text for name, text in configs.items()})
    else:
        rendered = {name: parsed.render(name) for name in TOPIC_SETTINGS}
        assert parsed == TopicConfig.parse(rendered)


@pytest.mark.peer
def test_names_types_defaults_and_ranges_are_those_of_kafka() -> None:
    """Kafka prints its own table of topic configs; ours must say the same."""
    peers.require("kafka")
    printed = peers.java("org.apache.kafka.storage.internals.log.LogConfig").stdout
    kafka = dict(_facts(item) for item in printed.split("<li>")[1:])
    ours = {
        name: {
            "Type": setting.kind.name.lower(),
            "Default": setting.render(setting.default),
            "Server Default Property": setting.server_default,
        }
        for name, setting in TOPIC_SETTINGS.items()
        if name not in OURS
    }

    assert kafka.keys() == ours.keys()
    for name, facts in kafka.items():
        setting = TOPIC_SETTINGS[name]
        if name in DIFFERENT_DEFAULTS:
            here, there = DIFFERENT_DEFAULTS[name]
            assert (here, there) == (ours[name]["Default"], facts["Default"])
            facts["Default"] = here
        valid = facts.pop("Valid Values")
        assert facts == ours[name]
        if setting.kind in {Kind.INT, Kind.LONG, Kind.DOUBLE}:
            assert valid == _range(setting.low, setting.high, setting.also_allowed)
        elif setting.choices:
            assert valid == f"[{', '.join(setting.choices)}]"


def test_every_server_default_is_a_broker_setting_of_the_same_kind() -> None:
    settings = BrokerSettings()
    for setting in TOPIC_SETTINGS.values():
        if setting.server_default is not None:
            settings.render(setting.server_default)


def _facts(item: str) -> tuple[str, dict[str, str | None]]:
    name = re.search(r'<a id="([^"]+)"', item)
    assert name is not None
    found: dict[str, str | None] = {}
    for row in re.findall(r"<tr>(.*?)</tr>", item):
        key, _, value = html.unescape(re.sub(r"<[^>]+>", "", row)).partition(":")
        if key == "Default":
            value = re.sub(r" \(.*\)$", "", value).replace('""', "")
        if key != "Importance":
            found[key] = None if value == "null" else value
    return name[1], found


def _range(low: float | None, high: float | None, also: int | None) -> str:
    if low is None:
        return ""
    shown = f"[{low:g},..." if low < 1000 else f"[{int(low)},..."
    if low < -1000:
        shown = f"[{int(low)},..."
    shown += "]" if high is None else f",{high:g}]"
    return shown if also is None else f"{shown} or {also}"
