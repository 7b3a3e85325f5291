"""The Java clients: 4.3, the last of the 3.x line, which most frameworks still pin, and 2.8."""

from typing import ClassVar

from tests.interop import scenarios


class JavaClient(
    scenarios.Records,
    scenarios.AutoCreation,
    scenarios.LongPolls,
    scenarios.Offsets,
    scenarios.Administration,
):
    impatience: ClassVar[dict[str, object]] = {"max.block.ms": 1_500}
    offsets_differ: ClassVar[dict[str, object]] = {"none": "NoOffsetForPartitionException"}


class TestJava43(JavaClient):
    client = "java-4.3"


class TestJava39(JavaClient):
    client = "java-3.9"


class TestJava28(scenarios.Records, scenarios.AutoCreation, scenarios.LongPolls, scenarios.Offsets):
    client = "java-2.8"
    impatience = JavaClient.impatience
    offsets_differ = JavaClient.offsets_differ
