"""aiokafka: a client for asyncio that speaks only older versions of every request."""

from typing import ClassVar

from tests.interop import scenarios


class TestAiokafka(
    scenarios.Records,
    scenarios.AutoCreation,
    scenarios.LongPolls,
    scenarios.Offsets,
    scenarios.Administration,
):
    client = "aiokafka"
    sends_nothing_at_all = False
    impatience: ClassVar[dict[str, object]] = {"request_timeout_ms": 1_500}
    # aiokafka reads committed metadata, but has no way to show it.
    offsets_without = frozenset({"metadata"})
    admin_without = frozenset(
        {
            "incremental",
            "offsets",
            "trim beyond",
            "log dirs",
            "group moved",
            "group forgotten",
            "group deleted",
            "delete group again",
        }
    )
