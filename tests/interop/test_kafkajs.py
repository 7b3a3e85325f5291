"""kafkajs on node: a client that knows no flexible version at all."""

from typing import ClassVar

from tests.interop import scenarios


class TestKafkajs(
    scenarios.Records,
    scenarios.AutoCreation,
    scenarios.LongPolls,
    scenarios.Offsets,
    scenarios.Administration,
):
    client = "kafkajs"
    sends_null_headers = False
    impatience: ClassVar[dict[str, object]] = {
        "retry": {"retries": 1, "initialRetryTime": 50},
        "connectionTimeout": 1_500,
    }
    # kafkajs takes no place at the end without a first fetch, and knows no reset but two.
    offsets_without = frozenset({"latest", "none"})
    # It answers the end itself where the broker finds no record.
    offsets_differ: ClassVar[dict[str, object]] = {"after the last": 10}
    admin_without = frozenset({"incremental", "log dirs", "group forgotten"})
    admin_differs: ClassVar[dict[str, object]] = {
        # Of its own accord: no error for a topic that exists, no largest timestamp, and its own
        # check of the end before records are deleted.
        "create again": False,
        "offsets": [0, 10, 3],
        "trim beyond": "KafkaJSNonRetriableError",
    }
