"""An Apache Kafka with locks on its doors.

This file alone decides who may come in through which listener, and with which certificates and
passwords. What clients make of that is the tests' business.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import peers
from tests.peers.certificates import Authority
from tests.peers.kafka_server import ApacheKafka, running_kafka

USER = "anna"
PASSWORD = "open sesame: öffne dich!"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# Kafka listens to no second proof within a second of the first.
REAUTHENTICATION_MS = 2000

LISTENERS = {
    "ENCRYPTED": "SSL",
    "MUTUAL": "SSL",
    "PASSWORD": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
}


class Secured:
    """The running broker, and the files that open its doors."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder, "authority")
        self.stranger = Authority(folder, "stranger")
        certificate, key = self.authority.sign("broker", alternative_name="IP:127.0.0.1")
        self.broker_store = folder / "broker-store.pem"
        self.broker_store.write_text(key.read_text() + certificate.read_text())
        self.certificate, self.key = self.authority.sign("client", alternative_name="DNS:client")
        self.strange_certificate, self.strange_key = self.stranger.sign(
            "strange-client", alternative_name="DNS:client"
        )
        self.kafka: ApacheKafka

    def address(self, listener: str) -> str:
        """Give the address of one of the listeners."""
        return self.kafka.address(listener)

    @property
    def settings(self) -> dict[str, str]:
        """What the broker is told."""
        package = "org.apache.kafka.common.security"
        plain = f'{package}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
            "listener.name.short.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        }
        for listener in ("password", "both", "short"):
            prefix = f"listener.name.{listener}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = plain
            for mechanism in SCRAM:
                settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = (
                    f"{package}.scram.ScramLoginModule required;"
                )
        return settings


@contextmanager
def secured_kafka(folder: Path) -> Iterator[Secured]:
    """Start the broker; it is gone afterwards."""
    peers.require("kafka")
    peers.require("openssl")
    secured = Secured(folder)
    users = [
        option
        for mechanism in SCRAM
        for option in ("--add-scram", f'{mechanism}=[name={USER},password="{PASSWORD}"]')
    ]
    with running_kafka(
        secured.settings, heap="384M", listeners=LISTENERS, format_options=users
    ) as secured.kafka:
        yield secured
