"""The source through TLS and passwords, against an Apache Kafka that insists on them."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.errors import AuthenticationError, SecurityOptionError
from headwater.delivery.client.producer import Producer
from headwater.streams.connecting import connect
from headwater.streams.options import source_options
from tests.delivery.client.secured import PASSWORD, USER, Secured, secured_kafka
from tests.streams.brokers import APACHE_KAFKA, Broker
from tests.streams.source.driving import EARLIEST, Query, batch_read, values

pytestmark = pytest.mark.peer

LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


def options(secured: Secured, password: str = PASSWORD) -> dict[str, str]:
    """Return what somebody who comes from Spark's Kafka source has written."""
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{LOGIN} username="{USER}" password="{password}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.authority.certificate),
    }


def test_a_stream_and_a_batch_are_read_through_tls_with_a_password(secured: Secured) -> None:
    broker = Broker(APACHE_KAFKA, secured.address("BOTH"))
    topic = f"t-{secrets.token_hex(6)}"
    given = {"subscribe": topic, **options(secured)}
    read = source_options({**given, "bootstrap": broker.bootstrap}, streaming=True)
    with connect(read.bootstrap, read.client) as cluster:
        admin.create_topic(cluster, topic, partitions=2)
        with Producer(cluster) as producer:
            for number in range(20):
                producer.send(topic, b"%02d" % number, partition=number % 2)
    query = Query(broker, {**given, **EARLIEST})
    expected = [f"{number:02d}" for number in range(20)]
    assert values(query.all()) == expected
    query.reader.stop()
    assert values(batch_read(broker, given)) == expected


def test_a_wrong_password_and_a_missing_store_are_named_at_once(
    secured: Secured, tmp_path: Path
) -> None:
    broker = Broker(APACHE_KAFKA, secured.address("BOTH"))
    began = time.monotonic()
    with pytest.raises(AuthenticationError):
        batch_read(broker, {"subscribe": "x", **options(secured, "wrong")})
    assert time.monotonic() - began < 15  # not the client's patience of 30 s
    missing = {**options(secured), "kafka.ssl.truststore.location": str(tmp_path / "none.pem")}
    with pytest.raises(SecurityOptionError):
        batch_read(broker, {"subscribe": "x", **missing})
    java = {**options(secured), "kafka.ssl.truststore.type": "JKS"}
    with pytest.raises(SecurityOptionError):
        batch_read(broker, {"subscribe": "x", **java})
