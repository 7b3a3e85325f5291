"""Options that several commands share.

This file alone decides how a command names its broker, its time-out and its output, and what it
gets from them: a `Session`.
"""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import click

from headwater.base.errors import HeadwaterError
from headwater.base.settings import TOPIC_SETTINGS
from headwater.base.settings.places import DEFAULT_DATA
from headwater.base.spelling import nearest
from headwater.cli import output, run_file
from headwater.cli.errors import CommandError, Exit
from headwater.delivery.client.cluster import Cluster, TopicInfo, parse_addresses

BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP"
_FALLBACK = "localhost:9092"


def examples(*lines: str) -> str:
    """Return the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def broker_address(given: str | None) -> str:
    """Return where the broker is: as told, else the one of this folder, else the usual port."""
    if given:
        return given
    running = run_file.find(DEFAULT_DATA)
    return running.address if running else _FALLBACK


class Session:
    """What a command needs to talk to a broker and to a person.

    Attributes:
        as_json: Whether programs read the output.
    """

    def __init__(self, bootstrap: str | None, *, timeout_s: float, as_json: bool) -> None:
        """Nothing is connected before ``cluster`` is asked for."""
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._cluster: Cluster | None = None
        self.as_json = as_json

    def prefer(self, address: str) -> None:
        """Talk to this broker, unless another one was named."""
        self._bootstrap = self._bootstrap or address

    @property
    def bootstrap(self) -> str:
        """Where the broker is."""
        return broker_address(self._bootstrap)

    @property
    def cluster(self) -> Cluster:
        """The brokers."""
        if self._cluster is None:
            self._cluster = Cluster(
                self.bootstrap, client_id="headwater-cli", timeout_s=self._timeout_s
            )
        return self._cluster

    def topic(self, name: str) -> TopicInfo:
        """Return a topic, or say which one was probably meant."""
        topics = self.cluster.topics()
        if name in topics:
            return topics[name]
        raise topic_not_found(name, topics)

    def tell(self, document: Mapping[str, object], sentence: str) -> None:
        """Report what was done, to whoever reads."""
        if self.as_json:
            output.document(document)
        else:
            output.say(sentence)

    def __enter__(self) -> Self:
        """Use the session in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        if self._cluster is not None:
            self._cluster.close()


def topic_not_found(name: str, known: Mapping[str, object]) -> CommandError:
    """Return the error for a topic that does not exist, with the one that was probably meant."""
    close = nearest(name, known)
    message = f"topic {name!r} not found" + (f" - did you mean {close!r}?" if close else "")
    hint = f"create it with: headwater topic create {name} (all topics: headwater topic ls)"
    return CommandError(Exit.NOT_FOUND, "TOPIC_NOT_FOUND", message, hint=hint)


# What helps whoever wants to change one by hand.
_INTERNAL_TOPICS = {
    "__consumer_offsets": "to forget one group's offsets: headwater group rm GROUP",
    "__transaction_state": (
        "ids that nobody uses expire by themselves (transactional.id.expiration.ms); "
        "which transactions are open: headwater doctor"
    ),
    "__share_group_state": "look at it with: headwater topic ls --all",
}


def leave_internal_alone(*names: str) -> None:
    """Refuse topics that a broker keeps for itself: groups or transactions would be lost."""
    for name in names:
        if name in _INTERNAL_TOPICS:
            raise CommandError(
                Exit.NOT_ALLOWED,
                "INTERNAL_TOPIC",
                f"{name} is the broker's own, made and kept by it",
                hint=_INTERNAL_TOPICS[name],
            )


class Number(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A number that is large enough; unlike click's own ranges it keeps help texts quiet."""

    def __init__(
        self, least: float = 0, *, most: float | None = None, fraction: bool = False
    ) -> None:
        """Say which numbers will do."""
        self.name = "number" if fraction else "whole number"
        self._kind = float if fraction else int
        self._least = least
        self._most = most

    def convert(
        self,
        value: Any,  # noqa: ANN401 - the signature is click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Read it."""
        try:
            number = self._kind(value)
        except ValueError:
            self.fail(f"{value!r} is no {self.name}", param, ctx)
        if number < self._least or (self._most is not None and number > self._most):
            bounds = f"{self._least} or more" if self._most is None else f"at most {self._most}"
            self.fail(f"{value} must be {bounds}", param, ctx)
        return number


Command = Callable[..., Any]


def check_bootstrap(
    ctx: click.Context,  # noqa: ARG001 - the signature is click's
    param: click.Parameter,  # noqa: ARG001 - as above
    value: str | None,
) -> str | None:
    """Refuse what can be no broker's address as wrong usage, before anything is done."""
    if value:
        try:
            parse_addresses(value)
        except HeadwaterError as error:
            raise click.BadParameter(f"{error.message}: {error.hint}") from None
    return value


_BOOTSTRAP = click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    callback=check_bootstrap,
    help="The broker. [default: the one of ./headwater-data, else localhost:9092; "
    f"${BOOTSTRAP_VARIABLE}]",
)
_TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Number(0.1, fraction=True),
    default=30.0,
    help="How long to wait for an answer.  [default: 30]",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Write JSON, errors on standard error included."
)


def with_session(command: Command) -> Command:
    """Give the command ``session``, and the options that make it."""

    @functools.wraps(command)
    def run(*args: Any, bootstrap: str | None, timeout_s: float, as_json: bool, **rest: Any) -> Any:  # noqa: ANN401 - whatever the command takes and gives
        with Session(bootstrap, timeout_s=timeout_s, as_json=as_json) as session:
            return command(*args, session=session, **rest)

    return json_option(_TIMEOUT(_BOOTSTRAP(run)))


def parse_pairs(pairs: tuple[str, ...], what: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` arguments."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{what} {pair!r} must be NAME=VALUE")
        found[name] = value
    return found


def parse_configs(pairs: tuple[str, ...]) -> dict[str, str]:
    """Read topic configs: "7d" and "1GiB" become Kafka's plain numbers.

    Names that we do not know are left to the broker, which may be another one than ours.
    """
    configs = parse_pairs(pairs, "config")
    for name, text in configs.items():
        known = TOPIC_SETTINGS.get(name)
        if known is not None:
            configs[name] = known.render(known.parse_human(text)) or text
    return configs


def want_yes(*, given: bool, what: str) -> None:
    """Refuse what cannot be undone unless it was confirmed: by --yes, or at the terminal."""
    if given:
        return
    interactive = os.isatty(0) and os.isatty(2)
    if interactive and click.confirm(f"{what} Go on?", err=True):
        return
    raise CommandError(
        Exit.IN_THE_WAY, "NOT_CONFIRMED", f"{what} Nothing was done.", hint="repeat it with --yes"
    )
