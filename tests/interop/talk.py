"""A conversation about one group with one broker, ours or Apache Kafka, and what was said.

Every answer is written down as plain values. What chance decides is replaced: member ids by the
order in which they appear, topic ids and the port by whether there is one.
"""

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from headwater.base.schema import Message, Struct
from headwater.delivery.wire.kafka import apis, framing
from headwater.delivery.wire.kafka.messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

TIMEOUT_S = 60.0
SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x06topic1\xff\xff\xff\xff"
_KEYS = {api.name: api.key for api in apis.APIS.values()}


class Client:
    """One connection; requests may be sent long before their answers are taken."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._sent: list[tuple[int, int]] = []

    def send(self, request: Message, version: int) -> None:
        key = _KEYS[type(request).__name__.removesuffix("Request")]
        for part in framing.encode_request(key, version, 7, "client", request):
            self._socket.sendall(part)
        self._sent.append((key, version))

    def receive(self) -> Any:  # noqa: ANN401 - the response to what was sent
        (size,) = struct.unpack(">i", self._read(4))
        key, version = self._sent.pop(0)
        return framing.decode_response(key, version, memoryview(self._read(size)))[1]

    def ask_until(self, request: Message, version: int, good: Callable[[Any], bool]) -> None:
        """Ask again until the broker is as far as it must be."""
        end_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end_s:
            self.send(request, version)
            if good(self.receive()):
                return
            time.sleep(0.05)
        raise TimeoutError(f"no good answer to {request}")

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("closed without an answer")
            data += chunk
        return bytes(data)


class Talk:
    """One scenario with one broker, and what was said."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.transcript: list[tuple[str, Any]] = []
        self._clients: dict[str, Client] = {}
        self._names: dict[str, str] = {}
        self.member_ids: dict[str, str] = {}
        self.generation = 0
        self.protocol: tuple[str | None, str | None] = (None, None)

    def client(self, name: str) -> Client:
        if name not in self._clients:
            self._clients[name] = Client(self.bootstrap)
        return self._clients[name]

    def ask(self, label: str, request: Message, version: int, who: str = "tool") -> Any:  # noqa: ANN401
        self.send(request, version, who)
        return self.take(label, who)

    def send(self, request: Message, version: int, who: str) -> None:
        self.client(who).send(request, version)

    def take(self, label: str, who: str) -> Any:  # noqa: ANN401
        response = self.client(who).receive()
        self.transcript.append((f"{who} {label}", self._plain(response)))
        return response

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    # Requests of members

    def join_request(self, who: str, **more: Any) -> JoinGroupRequest:  # noqa: ANN401
        protocols = more.pop("protocols", {"range": SUBSCRIPTION})
        return JoinGroupRequest(
            **{
                "group_id": self.group,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 40_000,
                "member_id": self.member_ids.get(who, ""),
                "protocol_type": "consumer",
                "protocols": [
                    JoinGroupRequest.JoinGroupRequestProtocol(*one) for one in protocols.items()
                ],
                **more,
            }
        )

    def start_join(self, who: str, version: int = 9, **more: Any) -> None:  # noqa: ANN401
        """Join as far as an answer must wait for others."""
        if version >= 4 and who not in self.member_ids and "group_instance_id" not in more:
            first = self.ask("asks for an id", self.join_request(who, **more), version, who)
            self.member_ids[who] = first.member_id
        self.send(self.join_request(who, **more), version, who)

    def start_first_join(self, who: str, members: int, **more: Any) -> None:  # noqa: ANN401
        """Join, and see to it that it is known before anything else is asked."""
        self.start_join(who, **more)
        self.wait_for_group(lambda group: len(group.members) == members)

    def wait_for_group(self, good: Callable[[Any], bool]) -> None:
        client = Client(self.bootstrap)
        request = DescribeGroupsRequest([self.group])
        client.ask_until(request, 4, lambda answer: good(answer.groups[0]))
        client.close()

    def end_join(self, who: str) -> Any:  # noqa: ANN401
        joined = self.take("joined", who)
        if joined.error_code == 0:
            self.member_ids[who] = joined.member_id
            self.generation = joined.generation_id
            self.protocol = (joined.protocol_type, joined.protocol_name)
        return joined

    def join(self, who: str, version: int = 9, **more: Any) -> Any:  # noqa: ANN401
        self.start_join(who, version, **more)
        return self.end_join(who)

    def start_sync(
        self,
        who: str,
        version: int = 5,
        assign: dict[str, bytes] | None = None,
        **more: Any,  # noqa: ANN401
    ) -> None:
        self.send(
            SyncGroupRequest(
                **{
                    "group_id": self.group,
                    "generation_id": self.generation,
                    "member_id": self.member_ids.get(who, ""),
                    "protocol_type": self.protocol[0],
                    "protocol_name": self.protocol[1],
                    "assignments": [
                        SyncGroupRequest.SyncGroupRequestAssignment(self.member_ids[name], part)
                        for name, part in (assign or {}).items()
                    ],
                    **more,
                }
            ),
            version,
            who,
        )

    def sync(self, who: str, version: int = 5, **more: Any) -> None:  # noqa: ANN401
        self.start_sync(who, version, **more)
        self.take("synced", who)

    def beat(self, who: str, version: int = 4, **more: Any) -> None:  # noqa: ANN401
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_ids.get(who, ""),
            **more,
        }
        self.ask("beats", HeartbeatRequest(**fields), version, who)

    def leave(self, who: str) -> None:
        member = LeaveGroupRequest.MemberIdentity(self.member_ids[who])
        self.ask("leaves", LeaveGroupRequest(self.group, members=[member]), 5, who)

    def commit(
        self,
        who: str,
        offsets: dict[tuple[str, int], int],
        version: int = 9,
        metadata: str | None = "note",
        **more: Any,  # noqa: ANN401
    ) -> None:
        topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, OffsetCommitRequest.OffsetCommitRequestTopic(name))
            topic.topic_id = self.topic_id(name)
            topic.partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset, 3, metadata)
            )
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation if who in self.member_ids else -1,
            "member_id": self.member_ids.get(who, ""),
            "topics": list(topics.values()),
            **more,
        }
        self.ask("commits", OffsetCommitRequest(**fields), version, who)

    def fetch(
        self, wanted: dict[str, list[int]] | None, version: int = 9, *, stable: bool = False
    ) -> None:
        if version < 8:
            topics = None
            if wanted is not None:
                topics = [OffsetFetchRequest.OffsetFetchRequestTopic(*o) for o in wanted.items()]
            request = OffsetFetchRequest(self.group, topics)
        else:
            many = None
            if wanted is not None:
                many = [
                    OffsetFetchRequest.OffsetFetchRequestTopics(name, self.topic_id(name), indexes)
                    for name, indexes in wanted.items()
                ]
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequest.OffsetFetchRequestGroup(self.group, topics=many)]
            )
        request.require_stable = stable and version >= 7
        self.ask(f"fetches v{version}", request, version)

    def describe(self, version: int = 6, *more: str) -> None:
        request = DescribeGroupsRequest(
            [self.group, *more], include_authorized_operations=version >= 3
        )
        self.ask("describes", request, version)

    def topic_id(self, name: str) -> bytes:
        client = Client(self.bootstrap)
        client.send(MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name)], False), 12)
        (topic,) = client.receive().topics
        client.close()
        found: bytes = topic.topic_id
        return found if any(found) else b"\x05" * 16

    # Comparing

    def _plain(self, value: Any) -> Any:  # noqa: ANN401 - any part of any message
        if isinstance(value, (Message, Struct)):
            names: tuple[str, ...] = type(value).__slots__
            fields = {name: self._field(name, getattr(value, name)) for name in names}
            if fields.get("error_code"):
                # Each broker explains its refusals in its own words.
                fields.pop("error_message", None)
            return fields
        if isinstance(value, list):
            return sorted((self._plain(one) for one in value), key=repr)
        return value

    def _field(self, name: str, value: Any) -> Any:  # noqa: ANN401
        if name in {"member_id", "leader"} and value:
            return self._names.setdefault(value, f"member {len(self._names)}")
        if name in {"topic_id", "port", "throttle_time_ms"}:
            return bool(value) if name != "topic_id" else any(value)
        if value == self.group:
            return "the group"
        return self._plain(value)
