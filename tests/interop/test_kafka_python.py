"""kafka-python: a client in pure Python that speaks the newest versions of every request."""

from typing import ClassVar

from tests.interop import scenarios


class TestKafkaPython(
    scenarios.Records,
    scenarios.AutoCreation,
    scenarios.LongPolls,
    scenarios.Offsets,
    scenarios.Administration,
):
    client = "kafka-python"
    sends_null_headers = False
    sends_nothing_at_all = False
    impatience: ClassVar[dict[str, object]] = {"max_block_ms": 1_500}
