"""Which of kafka-python's own tests Headwater does not pass, and why.

This file alone decides it. `test_kafka_python_suite.py` runs the others and sees to it that each of
these still exists, still does not pass, and does not pass for the reason given.
"""

from typing import NamedTuple


class Excluded(NamedTuple):
    """A test that is not passed.

    Attributes:
        reason: Why that is so.
        seen_by: Words of its failure, or of its skip.
    """

    reason: str
    seen_by: str


_NO_ACLS = Excluded(
    "Access control lists come with authentication; until then there is no authorizer.",
    "No Authorizer is configured",
)
_NO_TLS = Excluded(
    "The test starts a Kafka with TLS from its installation; TLS comes with authentication.",
    "kafka.properties",
)
_NO_SASL = Excluded(
    "The test leaves brokers alone that it did not start; SASL comes with authentication.",
    "Testing on external Kafka Broker",
)
_TOO_OLD = Excluded(
    "The test is about brokers before 0.10.1, which could not look up offsets by time.",
    "Requires KAFKA_VERSION < 0.10.1",
)

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

EXCLUDED: dict[str, Excluded] = {
    "test_admin_integration::test_create_describe_delete_acls": _NO_ACLS,
    "test_consumer_integration::test_kafka_consumer_offsets_for_time_old": _TOO_OLD,
    "test_ssl_integration.TestSSLConnection::test_legacy_kafka_client_ssl": _NO_TLS,
    "test_ssl_integration.TestSSLConnection::test_ssl_handshake": _NO_TLS,
    **{
        f"test_sasl_integration::{name}[{mechanism}]": _NO_SASL
        for name in ("test_admin", "test_client", "test_produce_and_consume")
        for mechanism in _MECHANISMS
    },
}
"""By the name of the test: its module, its class if it has one, and its function."""
