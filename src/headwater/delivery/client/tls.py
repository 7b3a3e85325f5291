"""Encrypted connections: whom we trust, who we are, and why a handshake fails.

This file alone decides which files certificates and keys are read from and what each failure of
TLS means to a user. It knows no option by its name but those that it advises.
"""

import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.delivery.client.errors import (
    AuthenticationError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    SecurityOptionError,
)

_PEM = b"-----BEGIN "
_JKS = b"\xfe\xed\xfe\xed"
# OpenSSL's numbers of X509_V_ERR_*, which Python has no names for.
_EXPIRED = 10
_UNKNOWN_ISSUER = {2, 18, 19, 20, 21}
_OTHER_NAME = {62, 64}

PROTOCOLS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True)
class Pem:
    """Certificates or keys: the option that gave them, and a path or the text itself."""

    option: str
    path: str = ""
    text: str = ""


@dataclass(frozen=True)
class Identity:
    """Our own certificate, and the key that proves that it is ours; both may be in one file."""

    certificates: Pem
    key: Pem
    key_password: str | None


def make_context(
    *,
    trusted: Pem | None,
    identity: Identity | None,
    check_name: bool,
    check_certificate: bool,
    protocols: set[str],
) -> ssl.SSLContext:
    """Prepare connections that trust the given authorities, or those of the system.

    Raises:
        SecurityOptionError: A file cannot be read, or is not PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = min(PROTOCOLS[each] for each in protocols)
    context.maximum_version = max(PROTOCOLS[each] for each in protocols)
    context.check_hostname = check_name and check_certificate
    if not check_certificate:
        context.verify_mode = ssl.CERT_NONE
    if trusted is None:
        context.load_default_certs()
    else:
        _trust(context, trusted)
    if identity is not None:
        _identify(context, identity)
    return context


def _trust(context: ssl.SSLContext, trusted: Pem) -> None:
    try:
        if trusted.text:
            context.load_verify_locations(cadata=trusted.text)
        elif Path(trusted.path).is_dir():
            context.load_verify_locations(capath=trusted.path)
        else:
            _check_pem(
                trusted, f"keytool -list -rfc -keystore {Path(trusted.path).name} > authorities.pem"
            )
            context.load_verify_locations(cafile=trusted.path)
    except ssl.SSLError as error:
        raise _unreadable(trusted, "holds no certificate that can be read") from error


def _identify(context: ssl.SSLContext, identity: Identity) -> None:
    for pem in (identity.certificates, identity.key):
        if pem.path:
            _check_pem(pem, _keystore_as_pem(Path(pem.path)))

    def password() -> str:
        # Without this OpenSSL would ask at the terminal.
        return identity.key_password or ""

    with _as_file(identity.certificates) as certificates, _as_file(identity.key) as key:
        try:
            context.load_cert_chain(certificates, key, password)
        except ssl.SSLError as error:
            raise SecurityOptionError(
                f"the certificate of {identity.certificates.option} and the key of"
                f" {identity.key.option} cannot be used: {_reason(error)}",
                hint="do they belong together, and is ssl.key.password the key's?",
            ) from error


def _keystore_as_pem(path: Path) -> str:
    to_pem = f"openssl pkcs12 -in {path.stem}.p12 -nodes -out {path.stem}.pem"
    if path.suffix in {".p12", ".pfx"}:
        return to_pem.replace(f"{path.stem}.p12", path.name)
    return (
        f"keytool -importkeystore -srckeystore {path.name} -deststoretype PKCS12"
        f" -destkeystore {path.stem}.p12 && {to_pem}"
    )


def _check_pem(pem: Pem, conversion: str) -> None:
    try:
        content = Path(pem.path).read_bytes()
    except OSError as error:
        raise SecurityOptionError(
            f"{pem.option}: {pem.path} cannot be read: {error.strerror}",
            hint="the file has to be there on every machine that connects to the broker",
        ) from error
    if _PEM in content:
        return
    kind = "a Java keystore (JKS)" if content.startswith(_JKS) else "no PEM, perhaps PKCS12"
    raise SecurityOptionError(
        f"{pem.option}: {pem.path} is {kind}; only PEM can be read",
        hint=f"make PEM of it and name that file: {conversion}",
    )


@contextlib.contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    """Give the path; Python's ssl takes no key from memory, so a text is written for a moment."""
    if not pem.text:
        yield pem.path
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem.text)
        yield path
    finally:
        Path(path).unlink()


def _unreadable(pem: Pem, what: str) -> SecurityOptionError:
    return SecurityOptionError(
        f"{pem.option} {what}", hint="PEM has lines as -----BEGIN CERTIFICATE-----"
    )


def handshake(plain: socket.socket, context: ssl.SSLContext, host: str, port: int) -> ssl.SSLSocket:
    """Encrypt a connection, and make sure who is at its other end.

    Raises:
        AuthenticationError: The broker is not who it should be, or does not let us in.
        BrokerUnreachableError: It speaks no TLS.
    """
    address = f"{host}:{port}"
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise _distrusted(error, address, host) from error
    except TimeoutError as error:
        raise BrokerTimeoutError(
            f"{address} did not answer the TLS handshake in time",
            hint="is security.protocol right? the listener may be a plain one",
        ) from error
    except OSError as error:
        refusal = explain_alert(error, address)
        if refusal is not None:
            raise refusal from error
        raise BrokerUnreachableError(
            f"{address} does not speak TLS: {_reason(error)}",
            hint="is security.protocol right? for a plain listener: PLAINTEXT or SASL_PLAINTEXT",
        ) from error


def _distrusted(
    error: ssl.SSLCertVerificationError, address: str, host: str
) -> AuthenticationError:
    if error.verify_code in _OTHER_NAME:
        return AuthenticationError(
            f"the certificate of {address} is not for {host!r}",
            hint="connect by a name that is in it, also in the broker's advertised.listeners;"
            " or give up the check with ssl.endpoint.identification.algorithm=none",
        )
    if error.verify_code in _UNKNOWN_ISSUER:
        return AuthenticationError(
            f"the certificate of {address} is signed by nobody whom we trust:"
            f" {error.verify_message}",
            hint="name the PEM file of its authority: ssl.ca.location (or ssl.truststore.location)",
        )
    if error.verify_code == _EXPIRED:
        return AuthenticationError(
            f"the certificate of {address} has expired", hint="renew it, or mend this clock"
        )
    return AuthenticationError(
        f"the certificate of {address} is not valid: {error.verify_message}",
        hint="look at it with: openssl s_client -showcerts -connect " + address,
    )


def explain_alert(error: OSError, address: str) -> AuthenticationError | None:
    """Say what the broker has against us; None if it is another kind of failure.

    With TLS 1.3 it says so only after the handshake, in place of the first answer.
    """
    reason = getattr(error, "reason", None) or ""
    if "CERTIFICATE_REQUIRED" in reason:
        return AuthenticationError(
            f"{address} wants to see a certificate of ours",
            hint="name it with ssl.certificate.location and ssl.key.location"
            " (or ssl.keystore.location)",
        )
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return AuthenticationError(
            f"{address} does not accept our certificate: {_reason(error)}",
            hint="is it signed by an authority in the broker's truststore, and still valid?",
        )
    if "HANDSHAKE_FAILURE" in reason:
        return AuthenticationError(
            f"{address} and we could not agree on how to encrypt: {_reason(error)}",
            hint="it may want a certificate of ours (ssl.certificate.location), or another"
            " ssl.enabled.protocols",
        )
    return None


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else error.strerror or str(error)
