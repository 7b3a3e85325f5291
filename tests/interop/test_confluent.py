"""confluent-kafka, the Python face of librdkafka."""

from typing import ClassVar

from tests.interop import scenarios


class TestConfluent(
    scenarios.Records,
    scenarios.AutoCreation,
    scenarios.LongPolls,
    scenarios.Offsets,
    scenarios.Administration,
):
    client = "confluent"
    impatience: ClassVar[dict[str, object]] = {
        "message.timeout.ms": 2_000,
        "topic.metadata.propagation.max.ms": 500,
    }
    offsets_without = frozenset({"latest"})
    offsets_differ: ClassVar[dict[str, object]] = {"none": -140}
    # librdkafka has neither call.
    admin_without = frozenset({"group forgotten", "log dirs"})
