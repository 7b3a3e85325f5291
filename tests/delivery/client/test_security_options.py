"""Options about TLS and passwords: both spellings, and a named error for every bad one."""

import ssl
import subprocess
from pathlib import Path

import pytest

from headwater.delivery.client.errors import SecurityOptionError
from headwater.delivery.client.security import Password, security_from
from tests import peers
from tests.peers.certificates import Authority, encrypted, pkcs12

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def password(options: dict[str, str]) -> Password:
    security = security_from({"security.protocol": "SASL_PLAINTEXT", **options})
    assert security is not None
    assert security.tls is None
    assert security.password is not None
    return security.password


def context(options: dict[str, str]) -> ssl.SSLContext:
    security = security_from({"security.protocol": "SSL", **options})
    assert security is not None
    assert security.password is None
    assert security.tls is not None
    return security.tls


def complaint(options: dict[str, str]) -> SecurityOptionError:
    with pytest.raises(SecurityOptionError) as refused:
        security_from(options)
    assert refused.value.hint
    return refused.value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with an authority, a certificate, and its key in several forms."""
    peers.require("openssl")
    folder = tmp_path_factory.mktemp("certificates")
    certificate, key = Authority(folder, "authority").sign("client", alternative_name="DNS:client")
    encrypted(key, "sesame")
    (folder / "both.pem").write_text(key.read_text() + certificate.read_text())
    pkcs12(certificate, key, "changeit")
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"client.id": "me", "security.protocol": ""},
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "plaintext", "sasl.username": "left over"},
    ],
)
def test_plain_connections(options: dict[str, str]) -> None:
    assert security_from(options) is None


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "anna", "sasl.password": "p"},
        {"sasl.mechanisms": "plain", "sasl.username": "anna", "sasl.password": "p"},
        {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="anna" password="p";',
        },
        {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"shaded.{PLAIN_MODULE} required\n\tusername='anna' password=p ; ",
        },
    ],
)
def test_both_spellings_of_a_password(options: dict[str, str]) -> None:
    assert password(options) == Password("PLAIN", "anna", "p")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(mechanism: str) -> None:
    login = rf'{SCRAM_MODULE} required password="a\"b;c\\d = e" username="anna";'
    found = password({"sasl.mechanism": mechanism, "sasl.jaas.config": login})
    assert found == Password(mechanism, "anna", r"a\"b;c\d = e".replace(r"\"", '"'))
    assert next(found.conversation()).startswith(b"n,,n=anna,r=")


def test_no_secret_is_shown() -> None:
    secret = "do-not-show"
    options = {"sasl.mechanism": "PLAIN", "sasl.username": "anna", "sasl.password": secret}
    assert secret not in repr(security_from({"security.protocol": "SASL_PLAINTEXT", **options}))
    for login in (f'Nonsense password="{secret}"', f'X required password="{secret}";'):
        error = complaint(
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": login,
            }
        )
        assert secret not in error.message + error.hint


@pytest.mark.parametrize(
    "options, what",
    [
        ({"sasl.username": "anna"}, r"sasl.username is set, but security.protocol is not"),
        ({"security.protocol": "TLS"}, "'TLS' does not exist"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is not set"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI is not supported"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER is not supported"),
        ({"sasl.mechanism": "CRAM-MD5"}, "CRAM-MD5' is not supported"),
        ({"sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"}, "different things"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "anna"}, "needs a user name"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "anna"}, "cannot be read"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM_MODULE} required a=b;"},
            "ScramLoginModule in sasl.jaas.config is not for PLAIN",
        ),
        (
            {
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f'{SCRAM_MODULE} required tokenauth="true";',
            },
            "'tokenauth'",
        ),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.username": "anna",
                "sasl.jaas.config": f'{PLAIN_MODULE} required username="b" password="c";',
            },
            "both say who we are",
        ),
        ({"sasl.login.class": "x"}, r"sasl.login.class is not supported"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "x"}, "ssl.cipher.suites is not"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "only PEM"),
        ({"security.protocol": "SSL", "ssl.keystore.type": "PKCS12"}, "only PEM"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
            "'ldaps' does not exist",
        ),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "no"}, "'no'"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere.pem"}, "cannot be read"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "nonsense"}, "ssl.ca.pem"),
        ({"security.protocol": "SSL", "ssl.key.pem": "key"}, "no certificate is"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], what: str) -> None:
    if "sasl.mechanism" in options or "sasl.login.class" in options:
        options = {"security.protocol": "SASL_PLAINTEXT", **options}
    assert what in complaint(options).message


def test_trust_in_the_system_by_default() -> None:
    found = context({})
    assert (found.check_hostname, found.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_less_trust_has_to_be_asked_for() -> None:
    for none in ("", "none"):
        found = context({"ssl.endpoint.identification.algorithm": none})
        assert (found.check_hostname, found.verify_mode) == (False, ssl.CERT_REQUIRED)
    found = context({"enable.ssl.certificate.verification": "false"})
    assert (found.check_hostname, found.verify_mode) == (False, ssl.CERT_NONE)


def test_protocols() -> None:
    found = context({"ssl.enabled.protocols": "TLSv1.3"})
    assert found.minimum_version == found.maximum_version == ssl.TLSVersion.TLSv1_3
    found = context({"ssl.enabled.protocols": "TLSv1.3, TLSv1.2"})
    assert found.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("option", ["ssl.ca.location", "ssl.truststore.location"])
def test_only_the_named_authority_is_trusted(folder: Path, option: str) -> None:
    found = context({option: str(folder / "authority.pem")})
    (trusted,) = found.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "authority"),),)


@pytest.mark.parametrize("option", ["ssl.ca.pem", "ssl.truststore.certificates"])
def test_an_authority_in_the_option_itself(folder: Path, option: str) -> None:
    assert len(context({option: (folder / "authority.pem").read_text()}).get_ca_certs()) == 1


def test_certificates_of_ours_in_every_form(folder: Path) -> None:
    certificate, key = folder / "client.pem", folder / "client.key"
    locked = folder / "client.locked.key"
    both = folder / "both.pem"
    for options in (
        {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)},
        {"ssl.keystore.location": str(both), "ssl.keystore.type": "PEM"},
        {
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(locked),
            "ssl.key.password": "sesame",
        },
        {
            "ssl.keystore.certificate.chain": certificate.read_text(),
            "ssl.keystore.key": locked.read_text(),
            "ssl.key.password": "sesame",
        },
        {"ssl.certificate.pem": certificate.read_text(), "ssl.key.pem": key.read_text()},
    ):
        context(options)
    for wrong in ({}, {"ssl.key.password": "wrong"}):
        error = complaint(
            {
                "security.protocol": "SSL",
                "ssl.certificate.location": str(certificate),
                "ssl.key.location": str(locked),
                **wrong,
            }
        )
        assert "ssl.key.password" in error.hint


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)


def run_hint(hint: str, folder: Path, answers: str) -> None:
    """Run the command that a hint ends with, as a user would."""
    command = hint.partition(": ")[2]
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        input=answers,
        text=True,
        check=False,
        timeout=60,
        capture_output=True,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_truststore_of_java_can_be_made_pem_as_the_error_says(folder: Path, kind: str) -> None:
    peers.require("javac")
    store = folder / f"truststore.{kind.lower()}"
    keytool(
        *("-importcert", "-noprompt", "-alias", "a", "-storetype", kind, "-storepass", "changeit"),
        *("-file", str(folder / "authority.pem"), "-keystore", str(store)),
    )
    error = complaint({"security.protocol": "SSL", "ssl.truststore.location": str(store)})
    assert f"truststore.{kind.lower()}" in error.message
    run_hint(error.hint, folder, "changeit\n")
    made = context({"ssl.truststore.location": str(folder / "authorities.pem")})
    assert len(made.get_ca_certs()) == 1


@pytest.mark.parametrize("kind", ["jks", "p12"])
def test_a_keystore_of_java_can_be_made_pem_as_the_error_says(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    peers.require("javac")
    store = tmp_path / f"keystore.{kind}"
    store.write_bytes((folder / "client.p12").read_bytes())
    if kind == "jks":
        store.unlink()
        keytool(
            *("-importkeystore", "-srckeystore", str(folder / "client.p12"), "-deststoretype"),
            *("JKS", "-srcstorepass", "changeit", "-deststorepass", "changeit"),
            *("-destkeystore", str(store)),
        )
    error = complaint({"security.protocol": "SSL", "ssl.keystore.location": str(store)})
    # openssl asks at the terminal, which a test has not.
    hint = error.hint.replace("openssl pkcs12", "openssl pkcs12 -passin pass:changeit")
    run_hint(hint, tmp_path, "changeit\nchangeit\nchangeit\n")
    context({"ssl.keystore.location": str(tmp_path / "keystore.pem")})
