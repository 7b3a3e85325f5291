"""What one request may create and delete.

This file alone decides what becomes of a request that changes more partitions than its client may
(KIP-599). Newer requests are strict: they are refused while the bucket is overdrawn, with an error
that their clients know. Older ones are carried out, and the client waits afterwards.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings.setting import INT_MAX
from headwater.delivery.broker.quotas.bucket import TokenBucket


class Mutations:
    """The quota of one request."""

    __slots__ = ("_bucket", "_limit", "_now_ms", "_strict", "throttle_ms")

    def __init__(
        self, bucket: TokenBucket | None, limit: float, now_ms: int, *, strict: bool
    ) -> None:
        """Take a bucket, or None where nothing is limited."""
        self._bucket = bucket
        self._limit = limit
        self._now_ms = now_ms
        self._strict = strict
        # How long the client has to wait after the answer.
        self.throttle_ms = 0

    def spend(self, partitions: int) -> None:
        """Pay for so many partitions.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED: nothing may be changed.
        """
        bucket = self._bucket
        if bucket is None:
            return
        if self._strict:
            self.throttle_ms = self._wait_ms(bucket)
            if self.throttle_ms:
                message = "The throttling quota has been exceeded."
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
            bucket.spend(partitions, self._limit, self._now_ms)
        else:
            bucket.spend(partitions, self._limit, self._now_ms)
            self.throttle_ms = self._wait_ms(bucket)

    def _wait_ms(self, bucket: TokenBucket) -> int:
        return min(bucket.overdrawn_ms(self._limit, self._now_ms), INT_MAX)
