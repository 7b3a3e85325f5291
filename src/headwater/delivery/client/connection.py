"""One blocking connection to one broker.

This file alone decides how a request gets its answer: which version both sides speak, in which
order answers are matched, and what a broken connection is called. It knows no topic and no group.

A connection that needs TLS or a password has both behind it when it is made. Some brokers want the
password again after a while: that happens before a request, when no answer is awaited.
"""

import contextlib
import socket
import struct
import time
from collections import deque
from typing import Any, Self

from headwater.base.errors import ErrorCode, KafkaError, MalformedMessageError
from headwater.base.schema import Message
from headwater.delivery.client import tls
from headwater.delivery.client.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    UnsupportedByBrokerError,
)
from headwater.delivery.client.security import Password, Security
from headwater.delivery.wire.kafka import apis, framing, messages

_SIZE = struct.Struct(">i")
# The largest answer that is believed: Kafka's own default for a fetch is 55 MB.
_ANSWER_BYTES_MAX = 1 << 30
_API_VERSIONS_NEWEST = 4
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
# Java's client gives the password again after 85 to 95 percent of the time for which it holds.
_SESSION_USED_MAX = 0.85
# Answered by every listener, also to those who have not proved who they are.
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_BEFORE_SERVICE = {apis.API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE}
_BY_NAME = {api.name: api for api in apis.APIS.values()}


class Connection:
    """A socket, the versions that the broker speaks, and the answers that are still awaited."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "headwater",
        timeout_s: float = 30.0,
        security: Security | None = None,
    ) -> None:
        """Connect, ask which versions are spoken, and prove who we are if that is wanted.

        Raises:
            BrokerUnreachableError: Nobody answers there.
            AuthenticationError: The broker or we are not who we should be.
        """
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._password = None if security is None else security.password
        self._session_ends_s = float("inf")
        self._next_id = 0
        self._has_served = False
        self._awaited: deque[tuple[int, int, int]] = deque()
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise BrokerUnreachableError(
                f"no broker answers at {self.address}: {error.strerror or error}",
                hint="start one with: headwater up (or name another with --bootstrap HOST:PORT)",
            ) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None and security.tls is not None:
                self._socket = tls.handshake(self._socket, security.tls, host, port)
            self.versions = self._first_answer()
            if self._password is not None:
                self._authenticate(self._password)
        except BaseException:
            self.close()
            raise

    def _first_answer(self) -> dict[int, tuple[int, int]]:
        try:
            return self._ask_versions()
        except BrokerTimeoutError:
            raise
        except BrokerUnreachableError as error:
            if isinstance(error.__cause__, OSError):
                refusal = tls.explain_alert(error.__cause__, self.address)
                if refusal is not None:
                    raise refusal from error
            raise BrokerUnreachableError(
                f"{self.address} does not answer as a Kafka broker does: {error.message}",
                hint="is it another service's port, or does it want TLS (security.protocol) or a"
                " certificate (ssl.certificate.location)? name another with --bootstrap HOST:PORT;"
                " or the broker lets in no more from this address",
            ) from error

    def _authenticate(self, password: Password) -> None:
        """Hold the conversation about the password; the broker closes the connection if it fails.

        Raises:
            AuthenticationError: The broker does not believe us, or wants no password.
        """
        self._session_ends_s = float("inf")
        mechanism = password.mechanism
        # Version 1: what follows is framed as requests are.
        offer = self.call(messages.SaslHandshakeRequest(mechanism), version_max=1)
        if offer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"{self.address} wants no password",
                hint="set security.protocol to PLAINTEXT, or to SSL; or name another listener",
            )
        if offer.error_code:
            offered = ", ".join(offer.mechanisms) or "nothing"
            raise AuthenticationError(
                f"{self.address} does not offer {mechanism}, but {offered}",
                hint="set sasl.mechanism to one that it offers",
            )
        conversation = password.conversation()
        message = next(conversation)
        while True:
            answer = self.call(messages.SaslAuthenticateRequest(message))
            if answer.error_code:
                raise AuthenticationError(
                    f"{self.address} does not let {password.username!r} in:"
                    f" {answer.error_message or ErrorCode(answer.error_code).name}",
                    hint=f"check user name, password and sasl.mechanism (now {mechanism})",
                )
            try:
                message = conversation.send(bytes(answer.auth_bytes))
            except StopIteration:
                break
        if answer.session_lifetime_ms:
            lifetime_s = answer.session_lifetime_ms / 1000
            self._session_ends_s = time.monotonic() + lifetime_s * _SESSION_USED_MAX

    def _authenticate_again(self) -> None:
        assert self._password is not None
        try:
            self._authenticate(self._password)
        except BaseException:
            self.close()
            raise

    def call(
        self, request: Message, *, version_max: int | None = None, timeout_s: float | None = None
    ) -> Any:  # noqa: ANN401 - the response class that belongs to the request
        """Send a request and wait for its answer; earlier answers must have been taken.

        Raises:
            UnsupportedByBrokerError: The broker offers no version that we speak.
            BrokerUnreachableError: The connection broke.
            BrokerTimeoutError: No answer in time.
        """
        assert not self._awaited, "an earlier answer was not taken"
        self.send(request, version_max=version_max)
        return self.receive(timeout_s=timeout_s)

    def send(self, request: Message, *, version_max: int | None = None) -> None:
        """Send a request; its answer comes after those of the requests before it."""
        if time.monotonic() >= self._session_ends_s and not self._awaited:
            self._authenticate_again()
        api = _BY_NAME[type(request).__name__.removesuffix("Request")]
        version = self.version(api.key, version_max)
        correlation_id, self._next_id = self._next_id, (self._next_id + 1) & 0x7FFFFFFF
        parts = framing.encode_request(api.key, version, correlation_id, self._client_id, request)
        self._awaited.append((api.key, version, correlation_id))
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(parts))
        except TimeoutError as error:
            raise self._broken(BrokerTimeoutError(self._silent(self._timeout_s))) from error
        except OSError as error:
            raise self._broken(self._lost(error)) from error
        except BaseException:
            self.close()
            raise

    def receive(self, *, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - any response
        """Wait for the answer to the oldest request that has none yet."""
        api_key, version, expected_id = self._awaited.popleft()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            self._socket.settimeout(timeout_s)
            frame = self._receive_frame()
        except TimeoutError as error:
            raise self._broken(BrokerTimeoutError(self._silent(timeout_s))) from error
        except OSError as error:
            raise self._broken(self._lost(error)) from error
        except BaseException:
            # Somebody pressed Ctrl-C: the rest of the answer would be taken for the next one.
            self.close()
            raise
        if api_key == apis.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
            version = 0  # whatever was asked, a broker that does not know it answers in this form
        try:
            correlation_id, response = framing.decode_response(api_key, version, frame)
        except MalformedMessageError as error:
            unreadable = f"{self.address} sent an answer that cannot be read: {error.message}"
            raise self._broken(BrokerUnreachableError(unreadable)) from error
        if correlation_id != expected_id:
            raise self._broken(
                BrokerUnreachableError(f"{self.address} answered a request that was not asked")
            )
        self._has_served = self._has_served or api_key not in _BEFORE_SERVICE
        return response

    def expect_no_answer(self) -> None:
        """The request just sent is one that brokers do not answer: produce with acks=0."""
        self._awaited.pop()

    def speaks(self, api_key: int) -> bool:
        """Tell whether the broker offers an API in a version that we know."""
        with contextlib.suppress(UnsupportedByBrokerError):
            self.version(api_key)
            return True
        return False

    def version(self, api_key: int, version_max: int | None = None) -> int:
        """Return the newest version of an API that both sides speak."""
        api = apis.APIS[api_key]
        if not hasattr(self, "versions"):
            return _API_VERSIONS_NEWEST if version_max is None else version_max
        lowest, highest = self.versions.get(api_key, (0, -1))
        newest = min(highest, api.max_version)
        if version_max is not None:
            newest = min(newest, version_max)
        if newest < max(lowest, api.min_version):
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} does not offer {api.name}",
                hint="it may be older or newer than this client: see the table in docs/reference",
            )
        return newest

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        request = messages.ApiVersionsRequest(
            client_software_name="headwater", client_software_version="0"
        )
        response = self._try_versions(request, None)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = self._try_versions(request, 0)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _try_versions(self, request: messages.ApiVersionsRequest, version: int | None) -> Any:  # noqa: ANN401
        self.send(request, version_max=version)
        return self.receive()

    def _receive_frame(self) -> bytearray:
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        if not 0 < size <= _ANSWER_BYTES_MAX:
            raise OSError(f"an answer of {size} bytes is not Kafka's")
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        filled = 0
        while filled < size:
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionResetError("the broker closed the connection")
            filled += received
        return buffer

    def _silent(self, timeout_s: float) -> str:
        return f"the broker at {self.address} did not answer within {timeout_s:g} s"

    def _lost(self, error: OSError) -> BrokerUnreachableError:
        # A listener with passwords tells its versions to anybody, and then hangs up.
        maybe_sasl = not self._has_served and self._password is None and hasattr(self, "versions")
        return BrokerUnreachableError(
            f"the connection to {self.address} broke: {error.strerror or error}",
            hint="does it want a password? set security.protocol and sasl.mechanism"
            if maybe_sasl
            else "",
        )

    def _broken(self, error: BrokerUnreachableError) -> BrokerUnreachableError:
        self.close()
        return error

    @property
    def closed(self) -> bool:
        """Whether the connection is of no use any more."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """End the connection; harmless when repeated."""
        self._socket.close()
        self._awaited.clear()

    def __enter__(self) -> Self:
        """Use the connection in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
