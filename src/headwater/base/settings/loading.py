"""Where the broker's settings come from.

This file alone decides which source wins and remembers for each value where it came from. In
rising order: the default, ``headwater.toml`` files in the order given, ``HEADWATER_*`` variables,
flags. A file holds the settings in its table ``[broker]``, under Kafka's names, dotted or quoted::

    [broker]
    log.retention.ms = "3d"
    "headwater.overflow" = "drop"
    "headwater.overflow.bytes" = "1GiB"

A variable is the name in capitals with ``_`` for dots: ``HEADWATER_LOG_RETENTION_MS``; of our own
settings the leading ``headwater.`` is the prefix: ``HEADWATER_OVERFLOW``.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from headwater.base.errors import HeadwaterError, KafkaError
from headwater.base.settings.broker import (
    BROKER_SETTINGS,
    BrokerSettings,
    unknown_broker_config,
)
from headwater.base.settings.setting import Value
from headwater.base.spelling import nearest, suggestion

SECTION: Final = "broker"
# Of no concern to a broker: what else runs beside it.
_OTHER_SECTIONS: Final = ("pipelines",)
_PREFIX: Final = "HEADWATER_"
_OWN: Final = "headwater."


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """One line of ``config show --origin``."""

    name: str
    value: str | None
    origin: str
    documentation: str


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and where each of them came from.

    Attributes:
        settings: The values.
        origins: For each setting that is not a default, by Kafka's name: the file, variable or
            flag that gave it.
        warnings: Variables that look like misspelt settings.
    """

    settings: BrokerSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def show(self) -> Iterator[Shown]:
        """Yield every setting with its value and origin."""
        for name, known in BROKER_SETTINGS.items():
            value = "[hidden]" if known.sensitive else self.settings.render(name)
            yield Shown(name, value, self.origins.get(name, "default"), known.documentation)


def load_settings(
    flags: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
) -> Loaded:
    """Gather the settings from all sources.

    Args:
        flags: Values by Kafka's name, as given on the command line; None means not given.
        env: The environment.
        files: Paths of ``headwater.toml`` files, the stronger last; each must exist.

    Returns:
        The settings with their origins.

    Raises:
        HeadwaterError: A source cannot be read, or has a name or value that is not allowed; the
            message names the source.
    """
    values: dict[str, Value] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []

    def take(name: str, given: object, origin: str) -> None:
        known = BROKER_SETTINGS.get(name)
        try:
            if known is None:
                raise unknown_broker_config(name)
            values[known.field] = known.parse_human(given)
        except KafkaError as error:
            hint = f"allowed: {known.allowed()}" if known else "headwater config show lists all"
            raise HeadwaterError(f"{origin}: {error.message}", hint=hint) from None
        origins[name] = origin

    for path in files:
        for name, given in _read_file(path):
            take(name, given, path)
    for variable, text in sorted((env or {}).items()):
        name_of_variable = _VARIABLES.get(variable)
        if name_of_variable is not None:
            take(name_of_variable, text, variable)
        elif close := _misspelt(variable):
            warnings.append(f"{variable} is no setting; did you mean {close}?")
    for name, given in (flags or {}).items():
        if given is not None:
            take(name, given, f"flag {name}")
    settings = dataclasses.replace(BrokerSettings(), **values)  # type: ignore[arg-type]
    try:
        settings.check_together()
    except KafkaError as error:
        sources = ", ".join(sorted(set(origins.values())))
        raise HeadwaterError(f"{error.message} (settings from {sources})") from None
    return Loaded(settings, origins, tuple(warnings))


def variable_for(name: str) -> str:
    """Return the environment variable that sets a setting."""
    return _PREFIX + name.removeprefix(_OWN).replace(".", "_").upper()


_VARIABLES: Final = {variable_for(name): name for name in BROKER_SETTINGS}


def _misspelt(variable: str) -> str | None:
    """Return the variable that was probably meant; compared without what all have in common."""
    if not variable.startswith(_PREFIX):
        return None
    ends = [known.removeprefix(_PREFIX) for known in _VARIABLES]
    close = nearest(variable.removeprefix(_PREFIX), ends)
    return _PREFIX + close if close else None


def _read_file(path: str) -> Iterator[tuple[str, object]]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HeadwaterError(f"{path} does not exist", hint="check --config") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HeadwaterError(f"cannot read {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        hint = 'a name that continues another one must be quoted: "headwater.overflow.bytes" = 1'
        raise HeadwaterError(f"{path} is not valid TOML: {error}", hint=hint) from None
    for section in document:
        if section not in {SECTION, *_OTHER_SECTIONS}:
            close = suggestion(section, [SECTION, *_OTHER_SECTIONS])
            hint = f"broker settings stand in the table [{SECTION}]"
            raise HeadwaterError(f"{path}: unknown table or key {section}{close}", hint=hint)
    content = document.get(SECTION, {})
    if not isinstance(content, dict):
        raise HeadwaterError(f"{path}: {SECTION} must be a table, [{SECTION}]")
    yield from _flatten("", content)


def _flatten(prefix: str, table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flatten(f"{name}.", value)
        else:
            yield name, value
