"""One setting: reading, writing, judging."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Kind, Setting
from headwater.base.settings.setting import LONG_MAX
from headwater.base.spelling import nearest, suggestion

AGE = Setting(name="max.age.ms", kind=Kind.LONG, default=1, documentation="Age.", low=0)
ROOM = Setting(name="room.bytes", kind=Kind.INT, default=1, documentation="Room.", low=1)
RATIO = Setting(name="ratio", kind=Kind.DOUBLE, default=0.5, documentation="R.", low=0, high=1)
LEVEL = Setting(
    name="level", kind=Kind.INT, default=-1, documentation="L.", low=1, high=9, also_allowed=-1
)
POLICY = Setting(name="policy", kind=Kind.LIST, default="a", documentation="P.", choices=("a", "b"))
SWITCH = Setting(name="switch", kind=Kind.BOOLEAN, default=False, documentation="S.")
MAYBE = Setting(name="maybe.ms", kind=Kind.LONG, default=None, documentation="M.", optional=True)
SECRET = Setting(name="secret", kind=Kind.INT, default=1, documentation="S.", sensitive=True, low=0)
EVERY = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()]


def refusal(setting: Setting, text: object, *, human: bool = False) -> str:
    with pytest.raises(KafkaError) as caught:
        setting.parse_human(text) if human else setting.parse(text)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


@pytest.mark.parametrize(
    "setting, text, value",
    [
        (AGE, "10", 10),
        (AGE, " +10 ", 10),
        (AGE, str(LONG_MAX), LONG_MAX),
        (RATIO, "1e-3", 0.001),
        (RATIO, ".5", 0.5),
        (LEVEL, "-1", -1),
        (POLICY, "b , a", "b,a"),
        (POLICY, "", ""),
        (POLICY, "a,a", "a"),
        (SWITCH, " TRUE ", True),
        (SWITCH, "false", False),
        (MAYBE, None, None),
    ],
)
def test_reads_kafkas_form(setting: Setting, text: str, value: object) -> None:
    assert value == setting.parse(text)


@pytest.mark.parametrize(
    "setting, text, reason",
    [
        (AGE, "x", "Invalid value x for configuration max.age.ms: Not a number of type LONG"),
        (AGE, "10m", "Invalid value 10m for configuration max.age.ms: Not a number of type LONG"),
        (AGE, "1_0", "Invalid value 1_0 for configuration max.age.ms: Not a number of type LONG"),
        (AGE, "-1", "Invalid value -1 for configuration max.age.ms: Value must be at least 0"),
        (ROOM, str(2**31), "Not a number of type INT"),
        (RATIO, "1.5", "Value must be no more than 1"),
        (RATIO, "nan", "Not a number of type DOUBLE"),
        (LEVEL, "0", "Value must be between 1 and 9 or equal to -1"),
        (POLICY, "a,c", "Invalid value c for configuration policy: String must be one of: a, b"),
        (POLICY, "a,", "Configuration 'policy' values must not be empty."),
        (SWITCH, "yes", "Expected value to be either true or false"),
        (AGE, None, "Value must be non-null"),
    ],
)
def test_refuses_in_kafkas_words(setting: Setting, text: str, reason: str) -> None:
    assert refusal(setting, text).endswith(reason)


@pytest.mark.parametrize(
    "setting, text, value",
    [
        (AGE, "10m", 600_000),
        (AGE, "1.5 h", 5_400_000),
        (AGE, "7d", 604_800_000),
        (AGE, 250, 250),
        (ROOM, "64MiB", 64 << 20),
        (ROOM, "2 kb", 2_000),
        (SWITCH, True, True),
        (POLICY, ["a", "b"], "a,b"),
        (MAYBE, "", None),
    ],
)
def test_people_may_write_units_and_toml_types(
    setting: Setting, text: object, value: object
) -> None:
    assert value == setting.parse_human(text)


def test_an_unknown_unit_is_told_with_those_that_exist() -> None:
    assert "the unit must be one of ms, s, m, h, d" in refusal(AGE, "3 weeks", human=True)
    assert "Not a number" in refusal(LEVEL, "3m", human=True)


def test_a_secret_is_not_repeated_in_its_refusal() -> None:
    assert refusal(SECRET, "hunter2") == (
        "Invalid value [hidden] for configuration secret: Not a number of type INT"
    )


def test_says_what_is_allowed() -> None:
    allowed = [s.allowed() for s in (AGE, RATIO, LEVEL, POLICY, SWITCH)]
    assert allowed == ["0 or more", "0 to 1", "1 to 9, or -1", "any of a, b", "true or false"]


def test_every_default_survives_being_written_and_read() -> None:
    for setting in EVERY:
        assert setting.default == setting.parse(setting.render(setting.default))
        setting.check(setting.default)
        assert setting.documentation.endswith(".")
        assert setting.field.replace("_", ".") == setting.name


@given(st.sampled_from(EVERY), st.text() | st.from_regex(r"[+-]?[0-9]{1,20}", fullmatch=True))
def test_any_text_is_read_or_refused_and_what_is_read_can_be_written_again(
    setting: Setting, text: str
) -> None:
    try:
        value = setting.parse(text)
    except KafkaError:
        assert setting.name in refusal(setting, text)
    else:
        assert value == setting.parse(setting.render(value))


@given(st.sampled_from(EVERY), st.text())
def test_people_get_an_error_for_any_text_that_means_nothing(setting: Setting, text: str) -> None:
    try:
        value = setting.parse_human(text)
    except KafkaError:
        assert setting.name in refusal(setting, text, human=True)
    else:
        setting.check(value)


def test_suggests_only_what_is_close() -> None:
    assert nearest("retention.sm", TOPIC_SETTINGS) == "retention.ms"
    assert suggestion("zzz", TOPIC_SETTINGS) == ""
