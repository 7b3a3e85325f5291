"""The brokers behind an address, and who is responsible for what.

This file alone decides which broker a request goes to: any, the controller, a partition's leader,
a group's coordinator. It asks again when the answer may have changed, and gives up at a deadline.
"""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self, TypeVar

from headwater.base.errors import RETRIABLE, ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError, TopicReplacedError
from headwater.delivery.client.security import Security
from headwater.delivery.wire.kafka import messages

Result = TypeVar("Result")
Place = tuple[str, int]
"""A partition: its topic's name and its number."""

_DEFAULT_PORT = 9092
_RETRY_PAUSE_S = 0.1
# As retry.backoff.ms and retry.backoff.max.ms of Java's clients, with a gentler slope than their 2.
_RETRY_PAUSE_MAX_S = 1.0
_RETRY_PAUSE_GROWTH = 1.5
_METADATA_AGE_MAX_S = 30.0
_NOT_THE_ONE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}

GROUP = 0
TRANSACTION = 1
"""What a coordinator keeps: the key types of FindCoordinator."""


def is_retriable(error: HeadwaterError) -> bool:
    """Tell whether the same request may be answered better a moment later."""
    return (
        isinstance(error, KafkaError)
        and error.code in RETRIABLE
        and not isinstance(error, TopicReplacedError)
    )


def is_retriable_or_broken(error: HeadwaterError) -> bool:
    """Tell the same of requests that may be sent twice: a broker that is away may come back."""
    return is_retriable(error) or isinstance(error, BrokerUnreachableError)


OWN_PREFIX = "__hw_"
"""With what the names of all topics begin in which Headwater keeps something for itself."""


class PartitionInfo(NamedTuple):
    """Where one partition lives."""

    number: int
    leader: int
    replicas: list[int]
    in_sync: list[int]


class TopicInfo(NamedTuple):
    """A topic as the brokers describe it."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: list[PartitionInfo]

    @property
    def is_hidden(self) -> bool:
        """Whether it is kept by Kafka or by Headwater for itself, and read only if it is named."""
        return self.internal or is_own_topic(self.name)


def is_own_topic(name: str) -> bool:
    """Tell whether a topic is one in which Headwater keeps what it has to remember."""
    return name.startswith(OWN_PREFIX)


def parse_addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Read ``HOST:PORT[,HOST:PORT...]``; the port may be left out.

    Raises:
        HeadwaterError: The text is no list of addresses.
    """
    found = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            host, port = port, str(_DEFAULT_PORT)
        bare = host.removeprefix("[").removesuffix("]")
        # Colons need brackets around them, and a slash is from a web address.
        is_host = bare and "/" not in host and (":" not in host or host == f"[{bare}]")
        if not is_host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise HeadwaterError(
                f"{text.strip()!r} is no broker address", hint="write HOST:PORT, as localhost:9092"
            )
        found.append((bare, int(port)))
    return found


class Cluster:
    """All brokers that one address leads to; one connection to each, made when needed."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "headwater",
        timeout_s: float = 30.0,
        security: Security | None = None,
    ) -> None:
        """Prepare to connect; nobody is asked yet.

        Args:
            bootstrap: ``HOST:PORT``, or several with commas between them.
            client_id: The name under which the brokers know us.
            timeout_s: How long to wait for an answer, or for an error to pass.
            security: TLS and password, see `security_from`; None for plain connections.
        """
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._client_id = client_id
        self._security = security
        self._addresses = parse_addresses(bootstrap)
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int, str], Connection] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._topics_read_s = 0.0
        self._coordinators: dict[tuple[int, str], int] = {}
        self.cluster_id = ""
        self.controller_id = -1

    # --- who is there ---------------------------------------------------------------------------

    def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> None:
        """Ask for the brokers and topics; None means all topics.

        Raises:
            BrokerUnreachableError: No address answers.
        """
        wanted = None
        if topics is not None:
            wanted = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        response = self.any().call(request)
        if wanted is None:
            self._topics.clear()
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._topics_read_s = time.monotonic()
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                self._topics[topic.name] = _topic_info(topic)
            else:
                self._topics.pop(topic.name, None)
                if topic.error_code not in {
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ErrorCode.LEADER_NOT_AVAILABLE,
                }:
                    raise KafkaError(ErrorCode(topic.error_code), f"topic {topic.name!r}")

    def topics(self) -> dict[str, TopicInfo]:
        """Return all topics, freshly asked for."""
        self.refresh()
        return dict(self._topics)

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """Return one topic.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION when it does not exist.
        """
        fresh = time.monotonic() - self._topics_read_s < _METADATA_AGE_MAX_S
        if name in self._topics and fresh:
            return self._topics[name]
        deadline_s = time.monotonic() + self.timeout_s
        self.refresh([name], create=create)
        while create and name not in self._topics and time.monotonic() < deadline_s:
            # Apache Kafka creates topics in the background: the next answers will know it.
            time.sleep(_RETRY_PAUSE_S)
            self.refresh([name], create=create)
        if name not in self._topics:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {name!r} does not exist",
                hint=f"create it with: headwater topic create {name}",
            )
        return self._topics[name]

    def await_topic(self, name: str, *, partitions: int = 1) -> None:
        """Wait until a topic that was just created or grown is known and has its leaders.

        A broker may have promised it a moment before it knows of it itself.
        """
        deadline_s = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline_s:
            self.refresh([name])
            info = self._topics.get(name)
            found = [] if info is None else info.partitions
            if len(found) >= partitions and all(each.leader >= 0 for each in found):
                return
            time.sleep(_RETRY_PAUSE_S)

    def await_deletion(self, name: str, topic_id: bytes | None) -> None:
        """Wait until a topic that was just deleted is not known any more, or another has its name.

        Apache Kafka promises it a moment before its brokers have heard of it.
        """
        deadline_s = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline_s:
            self.refresh([name])
            if name not in self._topics or self._topics[name].topic_id != topic_id:
                return
            time.sleep(_RETRY_PAUSE_S)

    def knows(self, name: str) -> bool:
        """Tell whether the last answer that was about the topic had it."""
        return name in self._topics

    def forget_topic(self, name: str) -> None:
        """Ask again before the topic is used next."""
        self._topics.pop(name, None)

    @property
    def brokers(self) -> dict[int, tuple[str, int]]:
        """Host and port of every broker, by id; empty before the first ``refresh``."""
        return dict(self._brokers)

    # --- whom to ask ----------------------------------------------------------------------------

    def any(self) -> Connection:
        """Return a connection to whichever broker answers."""
        failure: BrokerUnreachableError | None = None
        for host, port in [*self._addresses, *self._brokers.values()]:
            try:
                return self._connect(host, port)
            except BrokerUnreachableError as error:
                failure = error
        assert failure is not None
        raise failure

    def broker(self, node_id: int, *, purpose: str = "") -> Connection:
        """Return the connection to one broker; each purpose has one of its own.

        Requests that wait at the broker (fetches, joins) need their own, because answers come in
        order and a waiting one holds up those behind it.
        """
        if node_id not in self._brokers:
            self.refresh(self._topics)
        if node_id not in self._brokers:
            raise BrokerUnreachableError(f"broker {node_id} is not part of the cluster any more")
        return self._connect(*self._brokers[node_id], purpose)

    def controller(self) -> Connection:
        """Return a connection to the broker that changes topics and configs."""
        if self.controller_id not in self._brokers:
            self.refresh([])
        if self.controller_id not in self._brokers:
            return self.any()  # KRaft brokers pass such requests on
        return self.broker(self.controller_id)

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition."""
        info = self.topic(topic)
        for each in info.partitions:
            if each.number == partition:
                if each.leader < 0:
                    self.forget_topic(topic)
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader"
                    )
                return each.leader
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic!r} has no partition {partition}",
            hint=f"see: headwater topic describe {topic}",
        )

    def coordinator(self, key: str, *, key_type: int = GROUP, purpose: str = "") -> Connection:
        """Return a connection to the broker that keeps a group, or a transactional id."""
        found = self._coordinators.get((key_type, key))
        if found is None:
            found = self.retrying(lambda: self._find_coordinator(key, key_type))
            self._coordinators[key_type, key] = found
        return self.broker(found, purpose=purpose)

    def forget_coordinator(self, key: str, *, key_type: int = GROUP) -> None:
        """Look for the coordinator again before it is used next."""
        self._coordinators.pop((key_type, key), None)

    def _find_coordinator(self, key: str, key_type: int) -> int:
        # Version 3 asks for one key at a time, which every broker since 2.0 understands.
        request = messages.FindCoordinatorRequest(key=key, key_type=key_type)
        response = self.any().call(request, version_max=3)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message or "")
        self._brokers[response.node_id] = (response.host, response.port)
        node_id: int = response.node_id
        return node_id

    def ask_coordinator(
        self,
        key: str,
        ask: Callable[[Connection], Result],
        *,
        key_type: int = GROUP,
        passes: Callable[[HeadwaterError], bool] = is_retriable,
        pause_s: float = _RETRY_PAUSE_S,
    ) -> Result:
        """Ask the coordinator until the time is up; look for another when it is not the one."""

        def ask_once() -> Result:
            try:
                return ask(self.coordinator(key, key_type=key_type))
            except (KafkaError, BrokerUnreachableError) as error:
                if isinstance(error, BrokerUnreachableError) or error.code in _NOT_THE_ONE:
                    self.forget_coordinator(key, key_type=key_type)
                raise

        return self.retrying(ask_once, passes=passes, pause_s=pause_s)

    # --- patience -------------------------------------------------------------------------------

    def retrying(
        self,
        action: Callable[[], Result],
        *,
        passes: Callable[[HeadwaterError], bool] = is_retriable,
        pause_s: float = _RETRY_PAUSE_S,
    ) -> Result:
        """Run the action again while its error is one that passes, until the time is up.

        Pauses grow, so that a broker which is coming back is not kept busy with refusing us.
        """
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            try:
                return action()
            except HeadwaterError as error:
                if not passes(error) or time.monotonic() >= deadline_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * _RETRY_PAUSE_GROWTH, _RETRY_PAUSE_MAX_S)

    # --- connections ----------------------------------------------------------------------------

    def _connect(self, host: str, port: int, purpose: str = "") -> Connection:
        key = (host, port, purpose)
        connection = self._connections.get(key)
        if connection is None or connection.closed:
            connection = Connection(
                host,
                port,
                client_id=self._client_id,
                timeout_s=self.timeout_s,
                security=self._security,
            )
            self._connections[key] = connection
        return connection

    def close_connections(self, purpose: str) -> None:
        """Close those that were made for one purpose."""
        for key in [key for key in self._connections if key[2] == purpose]:
            self._connections.pop(key).close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.close()
        self._connections.clear()

    def __enter__(self) -> Self:
        """Use the cluster in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _topic_info(topic: Any) -> TopicInfo:  # noqa: ANN401 - a nested struct of MetadataResponse
    return TopicInfo(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        sorted(
            PartitionInfo(
                each.partition_index, each.leader_id, list(each.replica_nodes), list(each.isr_nodes)
            )
            for each in topic.partitions
        ),
    )
