"""A broker that says only what a test has written down for it.

This file alone decides how a test plays the other side of a connection: frames are taken and given
with the codecs, what they say is the test's.
"""

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from headwater.base.schema import Message
from headwater.delivery.wire.kafka import apis, framing, messages

_SIZE = struct.Struct(">i")
Script = Callable[[int, int, Any], Message | bytes | None]


class ScriptedBroker:
    """Accepts connections and answers each request as the script says.

    The script gets key, version and request; it returns the response, raw bytes to send in its
    place, or None to close the connection.
    """

    def __init__(
        self, script: Script, versions: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        self._script = script
        self._versions = versions or {
            key: (api.min_version, api.max_version) for key, api in apis.APIS.items()
        }
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.asked: list[tuple[int, int]] = []
        self.port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone would leave the thread that waits for connections waiting.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client may go away at any time.
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(_SIZE.size):
                frame = stream.read(_SIZE.unpack(head)[0])
                header, request = framing.decode_request(frame)
                self.asked.append((header.api_key, header.api_version))
                answer = self._answer(header, request)
                if answer is None:
                    return
                connection.sendall(answer)

    def _answer(self, header: framing.RequestHeader, request: Any) -> bytes | None:  # noqa: ANN401
        if header.api_key == apis.API_VERSIONS:
            response: Message | bytes | None = messages.ApiVersionsResponse(
                api_keys=[
                    messages.ApiVersionsResponse.ApiVersion(key, low, high)
                    for key, (low, high) in self._versions.items()
                ]
            )
        else:
            response = self._script(header.api_key, header.api_version, request)
        if response is None or isinstance(response, bytes):
            return response
        return b"".join(framing.encode_response(header, response))


def one_node(port: int, topic: str, partitions: int = 1, leader: int = 1) -> Message:
    """Return the metadata of a cluster that is this broker alone, with one topic."""
    answer = messages.MetadataResponse
    return answer(
        brokers=[answer.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
        cluster_id="scripted",
        controller_id=1,
        topics=[
            answer.MetadataResponseTopic(
                name=topic,
                topic_id=bytes(16),
                partitions=[
                    answer.MetadataResponsePartition(
                        partition_index=number,
                        leader_id=leader,
                        replica_nodes=[1],
                        isr_nodes=[1],
                    )
                    for number in range(partitions)
                ],
            )
        ],
    )
