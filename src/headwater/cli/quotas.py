"""`headwater quota`: how much clients may ask for.

This file alone decides how people name those whom a quota is for, and in which units they read and
write it. What may be set is the broker's affair.
"""

import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from headwater.base.errors import KafkaError
from headwater.base.settings import Kind, Setting
from headwater.base.spelling import nearest
from headwater.cli import output
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import Session, examples, parse_pairs, with_session
from headwater.delivery.client.quotas import alter_quotas, describe_quotas

_BYTE_RATES = ("producer_byte_rate", "consumer_byte_rate")
_KEYS = (
    *_BYTE_RATES,
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_SIZE = Setting("bytes", Kind.LONG, None, "The bytes of a rate.")
_PER_ADDRESS = "connection_creation_rate"
_ANY = "(any)"

_SET_HELP = """Limit a client, a user or an address.

\b
producer_byte_rate         bytes a second that it writes
consumer_byte_rate         bytes a second that it reads
request_percentage         of the broker's time
controller_mutation_rate   partitions a second that it creates and deletes
connection_creation_rate   connections a second from one address
"""

Entity = dict[str, str | None]


def _for_whom(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command the options that name an entity."""
    for name, kind in (("ip", "address"), ("client", "client id"), ("user", "user")):
        metavar = {"ip": "ADDRESS", "client": "ID", "user": "NAME"}[name]
        command = click.option(
            f"--any-{name}", is_flag=True, help=f"Every {kind} that has no quota of its own."
        )(command)
        command = click.option(f"--{name}", metavar=metavar, help=f"This {kind}.")(command)
    return command


def _entity(options: Mapping[str, Any]) -> Entity:
    entity: Entity = {}
    for option, kind in (("user", "user"), ("client", "client-id"), ("ip", "ip")):
        name, any_one = options[option], options[f"any_{option}"]
        if name is not None and any_one:
            raise click.UsageError(f"either --{option} or --any-{option}")
        if name is not None or any_one:
            entity[kind] = name
    if not entity:
        raise click.UsageError("for whom? --client ID, --user NAME, --ip ADDRESS, or --any-client")
    return entity


def _words(entity: Mapping[str, str | None]) -> str:
    return " and ".join(
        f"any {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items()
    )


def _shown(key: str, value: float) -> str:
    if key in _BYTE_RATES:
        return f"{output.bytes_text(value)}/s"
    if key == "request_percentage":
        return f"{value:g} %"
    return f"{value:g}/s"


def _parsed(key: str, text: str) -> float:
    if key not in _KEYS:
        close = nearest(key, _KEYS)
        raise click.UsageError(
            f"no quota is called {key}; "
            + (f"did you mean {close}?" if close else f"there are {', '.join(_KEYS)}")
        )
    try:
        value = float(str(_SIZE.parse_human(text)) if key in _BYTE_RATES else text)
    except (KafkaError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        example = "10MiB" if key in _BYTE_RATES else "5"
        raise click.UsageError(f"{key}={text}: write a number, such as {key}={example}")
    if value <= 0:
        raise click.UsageError(
            f"{key}={text}: a quota is more than 0; to take one away: headwater quota clear"
        )
    return value


def _check_fits(keys: Iterable[str], entity: Entity) -> None:
    """Refuse what is counted by address for others, and the other way round."""
    for key in keys:
        if (key == _PER_ADDRESS) != ("ip" in entity):
            raise click.UsageError(
                f"{_PER_ADDRESS} goes with --ip ADDRESS or --any-ip"
                if key == _PER_ADDRESS
                else f"{key} goes with --client or --user; with --ip goes {_PER_ADDRESS} alone"
            )


def _is_address(text: str | None) -> bool:
    try:
        return text is None or bool(ipaddress.ip_address(text))
    except ValueError:
        return False


@click.group(
    epilog=examples(
        "headwater quota ls",
        "headwater quota set producer_byte_rate=1MiB --client importer",
        "headwater quota clear --client importer",
    )
)
def quota() -> None:
    """Show and set how much clients may ask for."""


@quota.command("ls", epilog=examples("headwater quota ls", "headwater quota ls --json"))
@with_session
def list_quotas(*, session: Session) -> None:
    """List every quota that is set."""
    found = sorted(describe_quotas(session.cluster), key=lambda each: _words(each.entity))
    if session.as_json:
        document = [{"entity": each.entity, "values": each.values} for each in found]
        output.document({"quotas": document})
        return
    if not found:
        output.note("no quotas; set one with: headwater quota set KEY=VALUE --client ID")
        return
    rows = []
    for each in found:
        names = [
            "" if kind not in each.entity else each.entity[kind] or _ANY
            for kind in ("user", "client-id", "ip")
        ]
        rows += [[*names, key, _shown(key, value)] for key, value in sorted(each.values.items())]
    output.table(["USER", "CLIENT", "ADDRESS", "QUOTA", "VALUE"], rows)


@quota.command(
    "set",
    help=_SET_HELP,
    epilog=examples(
        "headwater quota set producer_byte_rate=1MiB consumer_byte_rate=5MiB --client importer",
        "headwater quota set request_percentage=20 --any-client",
        "headwater quota set connection_creation_rate=10 --ip 10.0.0.7",
        "headwater quota set controller_mutation_rate=5 --any-user --dry-run",
    ),
)
@click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, required=True)
@_for_whom
@click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")
@with_session
def set_quota(*, session: Session, pairs: tuple[str, ...], dry_run: bool, **whom: object) -> None:
    """Set quotas; `_SET_HELP` is what people are told."""
    entity = _entity(whom)
    given = parse_pairs(pairs, "quota")
    values: dict[str, float | None] = {key: _parsed(key, text) for key, text in given.items()}
    _check_fits(values, entity)
    try:
        alter_quotas(session.cluster, entity, values, validate_only=dry_run)
    except KafkaError as error:
        # Whether a host name will do is the broker's to say: Apache Kafka looks it up.
        if _is_address(entity.get("ip")):
            raise
        hint = "write an address, such as --ip 10.0.0.7 or --ip ::1"
        raise CommandError(Exit.USAGE, error.code.name, error.message, hint=hint) from error
    document = {"entity": entity, "values": values, "dry_run": dry_run}
    done = "could be set" if dry_run else "set"
    keys = ", ".join(f"{key} {_shown(key, value)}" for key, value in values.items() if value)
    session.tell(document, f"{_words(entity)}: {done}: {keys}")


@quota.command(
    epilog=examples(
        "headwater quota clear --client importer",
        "headwater quota clear producer_byte_rate --any-client",
    )
)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@_for_whom
@with_session
def clear(*, session: Session, keys: tuple[str, ...], **whom: object) -> None:
    """Take quotas away: the ones that are named, or all of the entity."""
    entity = _entity(whom)
    current = [each.values for each in describe_quotas(session.cluster) if each.entity == entity]
    cleared = [key for values in current for key in values if not keys or key in keys]
    if not cleared:
        raise CommandError(
            Exit.NOT_FOUND,
            "QUOTA_NOT_FOUND",
            f"{_words(entity)} has no such quota",
            hint="see what is set with: headwater quota ls",
        )
    alter_quotas(session.cluster, entity, dict.fromkeys(cleared))
    session.tell(
        {"entity": entity, "cleared": cleared}, f"{_words(entity)}: cleared: {', '.join(cleared)}"
    )
