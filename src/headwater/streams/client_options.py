"""What the `kafka.*` options mean: those of a Kafka client, by Kafka's own names.

This file alone decides which of them have an effect, which are accepted without one and which are
refused, and reads them for the source and the sink alike. It makes no connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.base.spelling import nearest
from headwater.streams.errors import OptionError

_PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"

_DEFAULT_CLIENT_ID = "headwater-spark"
_DEFAULT_TIMEOUT_S = 30.0
# Large enough that a round trip is nothing beside it, small enough for two of them in a worker.
_DEFAULT_FETCH_BYTES = 8 << 20
_DEFAULT_WAIT_MS = 500

_TIMEOUT = "request.timeout.ms"
_PATIENCE = "default.api.timeout.ms"
_FETCH = "max.partition.fetch.bytes"
_FETCH_ALL = "fetch.max.bytes"
_WAIT = "fetch.max.wait.ms"
_ISOLATION = "isolation.level"
_GROUP = "group.id"
_CLIENT_ID = "client.id"
_EFFECTIVE = frozenset(
    {_TIMEOUT, _PATIENCE, _FETCH, _FETCH_ALL, _WAIT, _ISOLATION, _GROUP, _CLIENT_ID}
)
# Everything about security is read, and what of it is unknown is refused, by
# `headwater.delivery.client.security`.
_SECURITY = ("security.protocol", "sasl.", "ssl.", "enable.ssl.")
# They tune what this client does not have, or decides by itself; a query that sets them still runs.
_WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "exclude.internal.topics",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)
# As in Spark's Kafka source: they would take over what the source itself has to decide.
_REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are bytes: use hf.json, hf.avro or a cast on the column",
    "value.deserializer": "values are bytes: use hf.json, hf.avro or a cast on the column",
    "key.serializer": "keys are bytes: cast the column before",
    "value.serializer": "values are bytes: cast the column before",
    "enable.auto.commit": "progress is kept in the checkpoint, and mirrored into a group",
    "auto.commit.interval.ms": "progress is kept in the checkpoint, and mirrored into a group",
    "interceptor.classes": "there is no Java in this source",
    "group.instance.id": "the source is no member of its group",
    "partition.assignment.strategy": "the source is no member of its group; use assign",
}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What a client is told, apart from whom to ask."""

    client_id: str = _DEFAULT_CLIENT_ID
    timeout_s: float = _DEFAULT_TIMEOUT_S
    fetch_bytes: int = _DEFAULT_FETCH_BYTES
    wait_ms: int = _DEFAULT_WAIT_MS
    isolation: str | None = None
    group: str | None = None
    security: Mapping[str, str] = field(default_factory=dict)


def is_client_option(name: str) -> bool:
    """Tell whether an option is the client's, known or not."""
    return name.lower().startswith(_PREFIX)


def client_options(
    given: Mapping[str, str], *, more: frozenset[str] = frozenset()
) -> ClientOptions:
    """Read the `kafka.*` options among all that are given.

    Args:
        given: All options of a source or a sink.
        more: Names without effect here that whoever calls reads for itself.

    Raises:
        OptionError: One of them is unknown, refused or wrong.
    """
    texts = {
        name.lower().removeprefix(_PREFIX): text
        for name, text in given.items()
        if is_client_option(name)
    }
    known = _EFFECTIVE | _WITHOUT_EFFECT | more | {_BOOTSTRAP, "security.protocol"}
    security = {name: text for name, text in texts.items() if name.startswith(_SECURITY)}
    for name in texts.keys() - security.keys():
        if name in _REFUSED:
            raise OptionError(f"{_PREFIX}{name} cannot be set", hint=_REFUSED[name])
        if name not in known:
            close = nearest(name, known)
            raise OptionError(
                f"{_PREFIX}{name} is no option of the client"
                + (f"; did you mean {_PREFIX}{close}?" if close else ""),
                hint="options of the client are those of a Kafka consumer, behind kafka.",
            )
    isolation = texts.get(_ISOLATION)
    if isolation not in {None, "read_committed", "read_uncommitted"}:
        raise OptionError(
            f"{_PREFIX}{_ISOLATION} = {isolation!r}", hint="read_committed or read_uncommitted"
        )
    if texts.get(_GROUP, "one").strip() == "":
        raise OptionError(f"{_PREFIX}{_GROUP} is empty", hint="leave it out, or name a group")
    timeout_ms = _number(texts, _PATIENCE) or _number(texts, _TIMEOUT)
    return ClientOptions(
        client_id=texts.get(_CLIENT_ID, _DEFAULT_CLIENT_ID),
        timeout_s=timeout_ms / 1000 if timeout_ms else _DEFAULT_TIMEOUT_S,
        fetch_bytes=_number(texts, _FETCH) or _number(texts, _FETCH_ALL) or _DEFAULT_FETCH_BYTES,
        wait_ms=_number(texts, _WAIT) or _DEFAULT_WAIT_MS,
        isolation=isolation,
        group=texts.get(_GROUP),
        security=security,
    )


def _number(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise OptionError(
            f"{_PREFIX}{name} = {text!r} is no whole number above 0", hint=f"as in {name} = 30000"
        )
    return int(text)
