"""The quotas of clients: what is set, what was used, and who has to wait how long.

This file alone decides what counts against which quota. Limits are found by `limits`, amounts are
counted by `rate` and `bucket`; that the client really waits is the server's affair.

| key | counts | above it |
|---|---|---|
| producer_byte_rate | the bytes of Produce requests | the client waits after the answer |
| consumer_byte_rate | the bytes of answers to Fetch | an empty answer, and the client waits |
| request_percentage | the time the broker's loop works for the client | it waits, 1 s at most |
| controller_mutation_rate | partitions created and deleted | see `mutations` |
| connection_creation_rate | new connections from one address | they are closed, 1 s later at most |

While there is no authentication, every client is the user ANONYMOUS, as in Kafka.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import BrokerSettings
from headwater.base.settings.setting import INT_MAX
from headwater.delivery.broker.quotas.bucket import TokenBucket
from headwater.delivery.broker.quotas.entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Alteration,
    Component,
    changed_values,
    entity_key,
    matching,
)
from headwater.delivery.broker.quotas.limits import Limits
from headwater.delivery.broker.quotas.meters import Meters
from headwater.delivery.broker.quotas.mutations import Mutations
from headwater.delivery.broker.quotas.rate import Rate, Windows
from headwater.log.manifest import QuotaEntity
from headwater.log.store import LogStore

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection without authentication."""

# A second of work is a hundred percent.
_PERCENT_PER_NS: Final = 100 / 1e9

_UNLIMITED: Final = Mutations(None, 0, 0, strict=False)


class Quotas:
    """Every quota of one broker.

    Attributes:
        watching: Whether anything is set that concerns every request. While nothing is, reading
            this is all that quotas cost.
    """

    def __init__(self, store: LogStore, settings: BrokerSettings, clock: Clock) -> None:
        """Take the limits that were set on earlier runs."""
        self._store = store
        self._clock = clock
        self._windows = Windows(
            settings.quota_window_num, settings.quota_window_size_seconds * 1000
        )
        changes = Windows(
            settings.controller_quota_window_num,
            settings.controller_quota_window_size_seconds * 1000,
        )
        self._limits = Limits()
        self._rates = Meters(lambda now_ms: Rate(self._windows, now_ms))
        self._buckets = Meters(lambda now_ms: TokenBucket(changes, now_ms))
        for entity, values in store.quotas.items():
            self._limits.replace(entity, {}, values)
        self.watching = False
        self._look_again()

    # What is set.

    def describe(
        self, components: Sequence[Component], *, strict: bool
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Return the quotas of all entities that a filter finds.

        Raises:
            KafkaError: The filter is none.
        """
        quotas = self._store.quotas
        return {entity: quotas[entity] for entity in matching(quotas, components, strict=strict)}

    def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        """Change quotas; what is accepted is durable and in force when this returns.

        As in Kafka, an entity that is named again is refused, though its first change is made.

        Returns:
            For each entity the reason why it was refused, or None.

        Raises:
            StorageError: The disk failed or is full; nothing was changed.
        """
        before = self._store.quotas
        changes: dict[QuotaEntity, Mapping[str, float]] = {}
        results: dict[QuotaEntity, KafkaError | None] = {}
        for alteration in alterations:
            entity = entity_key(alteration.entity)
            keys = [key for key, _ in alteration.values]
            if entity in results or len(set(keys)) < len(keys):
                message = f"Ignoring duplicate entity or key: {dict(entity)}"
                results[entity] = KafkaError(ErrorCode.INVALID_REQUEST, message)
                continue
            current = before.get(entity, {})
            changed, results[entity] = changed_values(alteration, current)
            if changed != current:
                changes[entity] = changed
        if changes and not validate_only:
            replaced = {entity: before.get(entity, {}) for entity in changes}
            self._store.set_quotas(changes)
            for entity, values in changes.items():
                self._limits.replace(entity, replaced[entity], values)
            self._look_again()
        return results

    def _look_again(self) -> None:
        self.watching = self._limits.limits(
            PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE
        )

    # What is used.

    def produced(self, client_id: str | None, size_bytes: int) -> int:
        """Count the bytes of a Produce request; return for how long its client has to wait."""
        limit = self._limits.of_client(PRODUCER_BYTE_RATE, ANONYMOUS, client_id)
        if limit is None:
            return 0
        name = (PRODUCER_BYTE_RATE, limit.user, limit.client_id)
        return self._counted(name, size_bytes, limit.value)

    def fetch_bytes_max(self, client_id: str | None) -> int:
        """Return the most that one answer to Fetch may hold: more would always be throttled."""
        limit = self._limits.of_client(CONSUMER_BYTE_RATE, ANONYMOUS, client_id)
        if limit is None:
            return INT_MAX
        return int(min(INT_MAX, limit.value * self._windows.burst_ms / 1000))

    def fetched(self, client_id: str | None, size_bytes: int) -> int:
        """Count the bytes of an answer to Fetch; return for how long its client has to wait.

        If it has to, the answer must not be sent and does not count. One that is larger than the
        limit would ever allow goes out when nothing else did: else the client would be stuck.
        """
        limit = self._limits.of_client(CONSUMER_BYTE_RATE, ANONYMOUS, client_id)
        if limit is None:
            return 0
        name = (CONSUMER_BYTE_RATE, limit.user, limit.client_id)
        return self._counted(name, size_bytes, limit.value, take_back=True)

    def worked(self, client_id: str | None, busy_ns: int) -> int:
        """Count time spent on a request; return for how long its client has to wait."""
        limit = self._limits.of_client(REQUEST_PERCENTAGE, ANONYMOUS, client_id)
        if limit is None:
            return 0
        name = (REQUEST_PERCENTAGE, limit.user, limit.client_id)
        excess_ms = self._counted(name, busy_ns * _PERCENT_PER_NS, limit.value)
        return min(excess_ms, self._windows.window_ms)

    def worked_more(self, client_id: str | None, busy_ns: int) -> None:
        """Count time that nobody waits for now; it shows when the client asks the next time."""
        limit = self._limits.of_client(REQUEST_PERCENTAGE, ANONYMOUS, client_id)
        if limit is not None:
            now_ms = self._clock.monotonic_ms()
            name = (REQUEST_PERCENTAGE, limit.user, limit.client_id)
            self._rates.get(name, now_ms).add(busy_ns * _PERCENT_PER_NS, now_ms)

    def connected(self, address: str) -> int:
        """Count a new connection; return after how long it has to be closed, 0 if it may stay."""
        limit = self._limits.of_address(CONNECTION_CREATION_RATE, address)
        if limit is None:
            return 0
        name = (CONNECTION_CREATION_RATE, address)
        excess_ms = self._counted(name, 1, limit, take_back=True)
        return min(excess_ms, self._windows.window_ms)

    def mutations(self, client_id: str | None, *, strict: bool) -> Mutations:
        """Return what a request may create and delete."""
        limit = self._limits.of_client(CONTROLLER_MUTATION_RATE, ANONYMOUS, client_id)
        if limit is None:
            return _UNLIMITED
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.get((limit.user, limit.client_id), now_ms)
        return Mutations(bucket, limit.value, now_ms, strict=strict)

    def forget_idle(self) -> None:
        """Forget what nobody has used for a while."""
        now_ms = self._clock.monotonic_ms()
        self._rates.forget_idle(now_ms)
        self._buckets.forget_idle(now_ms)

    def _counted(
        self, name: tuple[str, ...], amount: float, limit: float, *, take_back: bool = False
    ) -> int:
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.get(name, now_ms)
        rate.add(amount, now_ms)
        excess_ms = min(rate.excess_ms(limit, now_ms), INT_MAX)
        if excess_ms and take_back:
            if rate.total == amount:
                return 0
            rate.add(-amount, now_ms)
        return excess_ms
