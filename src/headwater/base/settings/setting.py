"""One setting: what it may be, how it is read, how it is written.

This file alone decides how text becomes a value and a value becomes text. Two readings exist:
``parse`` is Kafka's own, used over the protocol (plain numbers, the same error sentences), and
``parse_human`` is for files, the environment and flags, where "10m" and "64MiB" are welcome.
It knows no single setting and nothing of where values come from.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from headwater.base.errors import ErrorCode, KafkaError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Value = bool | int | float | str | None


class Kind(IntEnum):
    """The types of Kafka's configs, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8


_INTEGER_BOUNDS = {
    Kind.SHORT: (-(2**15), 2**15 - 1),
    Kind.INT: (-(2**31), INT_MAX),
    Kind.LONG: (-(2**63), LONG_MAX),
}
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "tb": 1_000_000_000_000,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What is known about one setting before it has a value.

    Attributes:
        name: Kafka's name, with dots.
        kind: Its type as DescribeConfigs tells it.
        default: The value nobody has to give.
        documentation: What it does, for people.
        low: The smallest number allowed, if there is one.
        high: The largest number allowed, if there is one.
        choices: The words allowed; for lists, the words each item may be.
        optional: Whether it may have no value at all.
        sensitive: Whether its value is never shown.
        dynamic: Whether a running broker can take a new value.
        server_default: For topics: the broker setting that gives the default.
        also_allowed: One number outside the range that has a meaning of its own.
        items_like: For lists: the pattern of an item, and how to say it.
    """

    name: str
    kind: Kind
    default: Value
    documentation: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False
    sensitive: bool = False
    dynamic: bool = False
    server_default: str | None = None
    also_allowed: int | None = None
    items_like: tuple[str, str] | None = None

    @property
    def field(self) -> str:
        """The name of the dataclass field that holds the value."""
        return self.name.replace(".", "_")

    def parse(self, text: str | None) -> Value:
        """Read Kafka's form.

        Args:
            text: The value as a Kafka client sends it.

        Returns:
            A value that fits the range and the choices.

        Raises:
            KafkaError: INVALID_CONFIG, naming the setting, the value and what is allowed.
        """
        if text is None:
            if self.optional:
                return None
            raise self._refuse(text, "Value must be non-null")
        value = self._typed(text.strip())
        self.check(value)
        return value

    def parse_human(self, given: object) -> Value:
        """Read what a person wrote: also durations, sizes, and values that TOML has typed.

        Args:
            given: Text, or a bool, number or list from a TOML file.

        Returns:
            A value that fits the range and the choices.

        Raises:
            KafkaError: INVALID_CONFIG, naming the setting, the value and what is allowed.
        """
        if isinstance(given, bool):
            text = "true" if given else "false"
        elif isinstance(given, list):
            text = ",".join(str(item) for item in given)
        else:
            text = str(given).strip()
        if self.optional and not text and self.kind is not Kind.STRING:
            return None
        amount = self._amount(text)
        return self.parse(text if amount is None else str(amount))

    def render(self, value: Value) -> str | None:
        """Write a value as Kafka does."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    def check(self, value: Value) -> None:
        """Raise INVALID_CONFIG unless the value is inside the range and among the choices."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self._check_range(value)
        elif isinstance(value, str):
            self._check_words(value)

    def allowed(self) -> str:
        """Say what the setting may be, in a few words for people."""
        if self.choices:
            return ("any of " if self.kind is Kind.LIST else "one of ") + ", ".join(self.choices)
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.low is None and self.high is None:
            return {Kind.STRING: "text", Kind.LIST: "a list"}.get(self.kind, "a number")
        bounds = f"{_plain(self.low)} to {_plain(self.high)}".replace("to any", "or more")
        return bounds if self.also_allowed is None else f"{bounds}, or {self.also_allowed}"

    def _check_words(self, value: str) -> None:
        items = [value]
        if self.kind is Kind.LIST:
            items = value.split(",") if value else []
        if self.choices:
            for item in items:
                if item not in self.choices:
                    raise self._refuse(item, f"String must be one of: {', '.join(self.choices)}")
        if self.items_like is not None:
            pattern, form = self.items_like
            if items != ["*"] and not all(re.fullmatch(pattern, item) for item in items):
                shown = f"[{', '.join(items)}]"
                raise self._refuse(shown, f"{self.name} must be the literal '*' or {form}")

    def _typed(self, text: str) -> Value:
        if self.kind is Kind.BOOLEAN:
            lowered = text.lower()
            if lowered not in {"true", "false"}:
                raise self._refuse(text, "Expected value to be either true or false")
            return lowered == "true"
        if self.kind in {Kind.STRING, Kind.CLASS}:
            return text
        if self.kind is Kind.LIST:
            # A word said twice means no more than once: Kafka keeps the first.
            items = dict.fromkeys(item.strip() for item in text.split(",")) if text else {}
            if "" in items:
                message = f"Configuration '{self.name}' values must not be empty."
                raise KafkaError(ErrorCode.INVALID_CONFIG, message)
            return ",".join(items)
        if self.kind is Kind.DOUBLE:
            try:
                number = float(text)
            except ValueError:
                raise self._refuse(text, "Not a number of type DOUBLE") from None
            if math.isnan(number):
                raise self._refuse(text, "Not a number of type DOUBLE")
            return number
        return self._integer(text)

    def _integer(self, text: str) -> int:
        low, high = _INTEGER_BOUNDS[self.kind]
        if re.fullmatch(r"[+-]?[0-9]+", text):
            number = int(text)
            if low <= number <= high:
                return number
        raise self._refuse(text, f"Not a number of type {self.kind.name}")

    def _check_range(self, value: float) -> None:
        if self.also_allowed is not None:
            low, high = _plain(self.low), _plain(self.high)
            inside = (self.low or 0) <= value and (self.high is None or value <= self.high)
            if not inside and value != self.also_allowed:
                bounds = f"at least {low}" if self.high is None else f"between {low} and {high}"
                raise self._refuse(value, f"Value must be {bounds} or equal to {self.also_allowed}")
            return
        if self.low is not None and value < self.low:
            raise self._refuse(value, f"Value must be at least {_plain(self.low)}")
        if self.high is not None and value > self.high:
            raise self._refuse(value, f"Value must be no more than {_plain(self.high)}")

    def _amount(self, text: str) -> int | None:
        """Return the number that "10m" or "64MiB" stands for; None when it is not such a text."""
        units = _units_of(self.name)
        if not units or self.kind not in _INTEGER_BOUNDS:
            return None
        match = _AMOUNT.fullmatch(text)
        if match is None:
            return None
        factor = units.get(match[2].lower())
        if factor is None:
            raise self._refuse(text, f"the unit must be one of {', '.join(units)}")
        amount = float(match[1]) * factor if "." in match[1] else int(match[1]) * factor
        return round(amount)

    def _refuse(self, value: object, reason: str) -> KafkaError:
        shown = "[hidden]" if self.sensitive else value
        message = f"Invalid value {shown} for configuration {self.name}: {reason}"
        return KafkaError(ErrorCode.INVALID_CONFIG, message)


def setting(  # noqa: PLR0913 - one keyword per fact, all of them optional
    default: Value,
    documentation: str,
    *,
    kind: Kind,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    optional: bool = False,
    sensitive: bool = False,
    dynamic: bool = False,
    server_default: str | None = None,
    also_allowed: int | None = None,
    items_like: tuple[str, str] | None = None,
) -> Any:  # noqa: ANN401 - stands on the right of fields of every type
    """Declare a dataclass field that is a setting; see ``Setting`` for the arguments."""
    facts = {
        "kind": kind,
        "default": default,
        "documentation": documentation,
        "low": low,
        "high": high,
        "choices": choices,
        "optional": optional,
        "sensitive": sensitive,
        "dynamic": dynamic,
        "server_default": server_default,
        "also_allowed": also_allowed,
        "items_like": items_like,
    }
    return dataclasses.field(default=default, metadata={"setting": facts})


def settings_of(dataclass: type) -> dict[str, Setting]:
    """Return the settings a dataclass declares, by Kafka's name, in the order of declaration."""
    found = {}
    for field in dataclasses.fields(dataclass):
        name = field.name.replace("_", ".")
        found[name] = Setting(name=name, **field.metadata["setting"])
    return found


def parse_all(
    settings: Mapping[str, Setting],
    given: Mapping[str, str | None],
    unknown: Callable[[str], KafkaError],
) -> dict[str, Value]:
    """Read several values in Kafka's form, for the fields of a dataclass.

    Args:
        settings: The settings by Kafka's name.
        given: Values by Kafka's name.
        unknown: Makes the error for a name that is not a setting.

    Returns:
        The values by field name.

    Raises:
        KafkaError: INVALID_CONFIG for the first name or value that is wrong.
    """
    for name in given:
        if name not in settings:
            raise unknown(name)
    return {settings[name].field: settings[name].parse(text) for name, text in given.items()}


def _units_of(name: str) -> Mapping[str, int]:
    last = name.rsplit(".", 1)[-1]
    return {"ms": _MILLISECONDS, "bytes": _BYTES, "size": _BYTES}.get(last, {})


def _plain(bound: float | None) -> str:
    if bound is None:
        return "any"
    return str(int(bound)) if float(bound).is_integer() else str(bound)
