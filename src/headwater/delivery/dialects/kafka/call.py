"""One request on its way through the broker.

This file alone decides what a handler may know of its request and how it answers. It knows no
handler and no socket: the connection behind it is a ``Line``.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headwater.delivery.broker.broker import Broker
from headwater.delivery.wire.kafka.framing import RequestHeader


class Line(Protocol):
    """The connection that a call came by."""

    host: str

    def answer(self, call: "Call", response: Any) -> None:  # noqa: ANN401 - any message class
        """Send the response when all earlier ones on the same connection are sent."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...

    def mute(self, delay_ms: int) -> None:
        """Read nothing more from the client for a while."""
        ...


class Call:
    """A request that waits for its answer."""

    __slots__ = (
        "_line",
        "_when_cancelled",
        "api_key",
        "broker",
        "cancelled",
        "cost",
        "header",
        "parts",
        "version",
    )

    def __init__(self, broker: Broker, line: Line, header: RequestHeader) -> None:
        self.broker = broker
        self.header = header
        self.api_key = header.api_key
        self.version = header.api_version
        self.cancelled = False
        # The encoded answer; None while it is awaited. Belongs to the line.
        self.parts: list[Any] | None = None
        # What it costs the client's quotas; None while there are none. Belongs to the line.
        self.cost: Any = None
        self._line = line
        self._when_cancelled: Callable[[], None] | None = None

    @property
    def client_id(self) -> str | None:
        """What the client calls itself."""
        return self.header.client_id

    @property
    def client_host(self) -> str:
        """The address that the client speaks from, as Kafka writes it."""
        return self._line.host

    def reply(self, response: Any) -> None:  # noqa: ANN401 - any message class
        """Answer; None means that the client expects no answer (acks=0)."""
        if not self.cancelled:
            self._when_cancelled = None
            self._line.answer(self, response)

    def close(self) -> None:
        """Drop the connection instead of an answer."""
        self._line.close()

    def mute(self, delay_ms: int) -> None:
        """Let the client wait before anything more is read from it."""
        self._line.mute(delay_ms)

    def throttle(self, response: Any, delay_ms: int) -> None:  # noqa: ANN401 - any message class
        """Tell the client to wait after this answer, and read nothing from it meanwhile.

        The longest wait counts; all responses but that of ApiVersions v0 can tell it.
        """
        if delay_ms > response.throttle_time_ms:
            response.throttle_time_ms = delay_ms
            self._line.mute(delay_ms)

    def on_cancel(self, action: Callable[[], None]) -> None:
        """Run the action if the client goes away before the answer, or has gone already."""
        if self.cancelled:
            action()
        else:
            self._when_cancelled = action

    def cancel(self) -> None:
        """The client is gone; called by the line."""
        self.cancelled = True
        action, self._when_cancelled = self._when_cancelled, None
        if action is not None:
            action()
