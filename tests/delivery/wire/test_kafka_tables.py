"""The committed tables and stubs are what Kafka's jars say."""

from codegen.kafka_messages import generate, snake_case
from tests import peers


def test_tables_and_stubs_are_those_that_codegen_writes() -> None:
    peers.require("kafka")
    for path, text in generate(peers.FETCHED / "kafka-4.3").items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run codegen.kafka_messages"


def test_names_of_fields() -> None:
    assert snake_case("TimeoutMs") == "timeout_ms"
    assert snake_case("KRaftVersionFeature") == "k_raft_version_feature"
    assert snake_case("ISRNodes") == "isr_nodes"
