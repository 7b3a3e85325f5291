"""TLS and passwords, against an Apache Kafka that insists on them."""

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
)
from headwater.delivery.client.security import Password, Security, security_from
from headwater.delivery.client.transactor import Transactor
from headwater.delivery.wire.kafka import messages
from tests.delivery.client.secured import (
    PASSWORD,
    REAUTHENTICATION_MS,
    SCRAM,
    USER,
    Secured,
    secured_kafka,
)

pytestmark = pytest.mark.peer

MECHANISMS = ("PLAIN", *SCRAM)
PATIENCE_S = 60.0
# Whoever tries again until patience ends is later than this, on a busy machine too.
AT_ONCE_S = 30.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as secured:
        yield secured


def credentials(mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}


def connect(address: str, options: dict[str, str], timeout_s: float = PATIENCE_S) -> Cluster:
    return Cluster(address, timeout_s=timeout_s, security=security_from(options))


def write_and_read(cluster: Cluster) -> None:
    """Use every kind of connection that a cluster makes."""
    topic = f"t-{secrets.token_hex(6)}"
    admin.create_topic(cluster, topic)
    transactor = Transactor(cluster, topic)
    transactor.begin()
    value = b"x" * 300_000
    transactor.send({(topic, 0): [build_batch([Record(0, 0, None, value, ())])] * 3})
    assert transactor.commit() == {(topic, 0): 3}
    with BatchReader(cluster, topic, 0, read_committed=False, fetch_bytes=1) as reader:
        for offset in range(3):
            assert value in bytes(reader.fetch(offset).records)


def refusal(address: str, options: dict[str, str]) -> AuthenticationError:
    """Return the error, which has to come at the first try."""
    begun_s = time.monotonic()
    with connect(address, options) as cluster, pytest.raises(AuthenticationError) as refused:
        cluster.retrying(cluster.refresh)
    assert time.monotonic() - begun_s < AT_ONCE_S, "it was tried again and again"
    assert refused.value.hint
    return refused.value


# --- what works ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password(secured: Secured, mechanism: str) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", **credentials(mechanism)}
    with connect(secured.address("PASSWORD"), options) as cluster:
        write_and_read(cluster)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_over_tls(secured: Secured, mechanism: str) -> None:
    options = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(secured.authority.certificate),
        **credentials(mechanism),
    }
    with connect(secured.address("BOTH"), options) as cluster:
        write_and_read(cluster)


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_tls(secured: Secured, protocol: str) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(secured.authority.certificate),
        "ssl.enabled.protocols": protocol,
    }
    with connect(secured.address("ENCRYPTED"), options) as cluster:
        write_and_read(cluster)


def test_a_certificate_of_ours(secured: Secured) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.certificate),
        "ssl.certificate.location": str(secured.certificate),
        "ssl.key.location": str(secured.key),
    }
    with connect(secured.address("MUTUAL"), options) as cluster:
        write_and_read(cluster)


def test_the_options_of_the_java_client(secured: Secured) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": secured.authority.certificate.read_text(),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
    }
    with connect(secured.address("BOTH"), options) as cluster:
        cluster.refresh()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_password_is_given_again_before_it_expires(secured: Secured, mechanism: str) -> None:
    host, port = secured.address("SHORT").split(":")
    security = security_from({"security.protocol": "SASL_PLAINTEXT", **credentials(mechanism)})
    with Connection(host, int(port), security=security) as connection:
        end_s = time.monotonic() + 2.5 * REAUTHENTICATION_MS / 1000
        while time.monotonic() < end_s:
            connection.call(messages.MetadataRequest(topics=[]))


# --- what does not, and how it is said ----------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", **credentials(mechanism, "wrong")}
    error = refusal(secured.address("PASSWORD"), options)
    assert f"does not let {USER!r} in" in error.message
    assert mechanism in error.hint
    assert "wrong" not in error.message


def test_a_wrong_password_is_said_once(secured: Secured) -> None:
    """Neither other addresses nor writers and readers knock again: accounts get locked."""
    address = secured.address("PASSWORD")
    options = {"security.protocol": "SASL_PLAINTEXT", **credentials(password="wrong")}
    with connect(f"{address},{address}", options) as cluster:
        for use in (
            lambda: Transactor(cluster, "t").begin(),
            lambda: BatchReader(cluster, "t", 0, read_committed=True, fetch_bytes=1).fetch(0),
        ):
            begun_s = time.monotonic()
            with pytest.raises(AuthenticationError):
                use()
            assert time.monotonic() - begun_s < AT_ONCE_S


def test_a_mechanism_that_is_not_offered(secured: Secured) -> None:
    security = Security(tls=None, password=Password("SCRAM-SHA-1024", USER, PASSWORD))
    host, port = secured.address("PASSWORD").split(":")
    with pytest.raises(AuthenticationError, match="does not offer SCRAM-SHA-1024, but") as refused:
        Connection(host, int(port), security=security)
    assert "SCRAM-SHA-512" in refused.value.message


def test_a_password_where_none_is_wanted(bootstrap: str) -> None:
    options = {"security.protocol": "SASL_PLAINTEXT", **credentials()}
    assert "wants no password" in refusal(bootstrap, options).message


def test_an_authority_that_did_not_sign(secured: Secured) -> None:
    for ca in ({}, {"ssl.ca.location": str(secured.stranger.certificate)}):
        error = refusal(secured.address("ENCRYPTED"), {"security.protocol": "SSL", **ca})
        assert "signed by nobody whom we trust" in error.message
        assert "ssl.ca.location" in error.hint


def test_a_name_that_is_not_in_the_certificate(secured: Secured) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.certificate),
    }
    address = secured.address("ENCRYPTED").replace("127.0.0.1", "localhost")
    error = refusal(address, options)
    assert "is not for 'localhost'" in error.message
    assert "ssl.endpoint.identification.algorithm" in error.hint
    unchecked = {**options, "ssl.endpoint.identification.algorithm": ""}
    with connect(address, unchecked) as cluster:
        cluster.refresh()


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("whose", ["none", "a stranger's"])
def test_a_certificate_that_the_broker_does_not_accept(
    secured: Secured, protocol: str, whose: str
) -> None:
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.certificate),
        "ssl.enabled.protocols": protocol,
    }
    if whose != "none":
        options["ssl.certificate.location"] = str(secured.strange_certificate)
        options["ssl.key.location"] = str(secured.strange_key)
    error = refusal(secured.address("MUTUAL"), options)
    assert "certificate" in error.message + error.hint


def test_tls_where_there_is_none(bootstrap: str) -> None:
    with (
        connect(bootstrap, {"security.protocol": "SSL"}) as cluster,
        pytest.raises(BrokerUnreachableError, match="does not speak TLS") as refused,
    ):
        cluster.refresh()
    assert "security.protocol" in refused.value.hint


@pytest.mark.parametrize("listener", ["ENCRYPTED", "PASSWORD", "BOTH"])
def test_a_plain_connection_where_it_is_not_enough(secured: Secured, listener: str) -> None:
    with (
        Cluster(secured.address(listener)) as cluster,
        pytest.raises(BrokerUnreachableError) as refused,
    ):
        cluster.refresh()
    assert "security.protocol" in refused.value.hint


def test_somebody_who_never_answers_the_handshake(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            connect(address, {"security.protocol": "SSL"}, timeout_s=0.3) as cluster,
            pytest.raises(BrokerTimeoutError, match="TLS handshake"),
        ):
            cluster.refresh()


def test_somebody_who_hangs_up_during_the_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(10)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with (
            connect(address, {"security.protocol": "SSL"}) as cluster,
            pytest.raises(BrokerUnreachableError, match="does not speak TLS"),
        ):
            cluster.refresh()
        thread.join()
