"""What one request costs the quotas of its client.

This file alone decides when a request's bytes and time are counted. It is asked only while some
quota is set; how long a client has to wait is decided by `headwater.delivery.broker.quotas`.

The bytes of a Produce request count when it is handled, so that requests which the client has sent
ahead wait behind it. Time is what the loop spends on the handler, and then on the answer; waiting
for a sync or for new records costs nothing.
"""

from time import perf_counter_ns
from typing import Any

from headwater.delivery.broker.quotas import Quotas

_PRODUCE = 0


class Cost:
    """The cost of one request so far.

    Attributes:
        throttle_ms: How long the client has to wait after the answer.
    """

    __slots__ = ("_busy_ns", "_client_id", "_quotas", "_since_ns", "throttle_ms")

    def __init__(
        self, quotas: Quotas, api_key: int, client_id: str | None, size_bytes: int
    ) -> None:
        self._quotas = quotas
        self._client_id = client_id
        self._busy_ns = -1
        self._since_ns = perf_counter_ns()
        self.throttle_ms = quotas.produced(client_id, size_bytes) if api_key == _PRODUCE else 0

    def handled(self) -> None:
        """The handler is done; the answer may still be awaited."""
        self._busy_ns = perf_counter_ns() - self._since_ns

    def answered(self, response: Any) -> int:  # noqa: ANN401 - any message class, or None
        """Count the time; return for how long the client has to wait, and tell it so."""
        now_ns = perf_counter_ns()
        busy_ns = self._busy_ns if self._busy_ns >= 0 else now_ns - self._since_ns
        self._since_ns = now_ns
        wait_ms = max(self.throttle_ms, self._quotas.worked(self._client_id, busy_ns))
        if wait_ms and wait_ms > getattr(response, "throttle_time_ms", wait_ms):
            response.throttle_time_ms = wait_ms
        return wait_ms

    def sent(self) -> None:
        """Count what the answer took as well; it shows in the next one's throttle time."""
        self._quotas.worked_more(self._client_id, perf_counter_ns() - self._since_ns)
