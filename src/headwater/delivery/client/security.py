"""Kafka's options for encryption and passwords, and what they come to.

This file alone decides which options there are, in the spelling of the Java client and in that of
librdkafka. An option that begins with ``ssl.`` or ``sasl.`` and is not understood is an error:
nobody shall believe that a connection is safer than it is. How a handshake goes stands in `tls`,
what is said about a password in `sasl`.
"""

import re
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.delivery.client import sasl, tls
from headwater.delivery.client.errors import SecurityOptionError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_LOGIN_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": tuple(_SCRAM_HASHES)}
_OTHER_MECHANISMS = {
    "GSSAPI": "Kerberos needs a library of the operating system",
    "OAUTHBEARER": "tokens have to come from somewhere, and nothing fetches them here",
}
_STORE_TYPES = ("PEM", "")
# The only option that says something when it is empty.
_NAME_CHECK = "ssl.endpoint.identification.algorithm"

_KNOWN = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.enabled.protocols",
        _NAME_CHECK,
        "enable.ssl.certificate.verification",
    }
)

_LOGIN = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)"
    r"(?P<options>(?:\s+\w+\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;\"']+))*)\s*;\s*",
    re.DOTALL,
)
_LOGIN_OPTION = re.compile(
    r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))", re.DOTALL
)


@dataclass(frozen=True)
class Password:
    """Who we are to the broker, how it is told, and what proves it."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def conversation(self) -> sasl.Conversation:
        """Begin to prove it; each conversation can be held once."""
        if self.mechanism == "PLAIN":
            return sasl.plain(self.username, self.password)
        return sasl.scram(
            self.username,
            self.password,
            hash_name=_SCRAM_HASHES[self.mechanism],
            nonce=secrets.token_urlsafe(24),
        )


@dataclass(frozen=True)
class Security:
    """What a connection needs before the first request; at least one of the two."""

    tls: ssl.SSLContext | None
    password: Password | None


def security_from(options: Mapping[str, str]) -> Security | None:
    """Read the options that are about security; None: plain connections.

    Raises:
        SecurityOptionError: One of them is unknown, missing or wrong, or a file cannot be used.
    """
    given = {name: value for name, value in options.items() if value or name == _NAME_CHECK}
    protocol = given.get("security.protocol", "").upper()
    others = [name for name in given if name.startswith(("sasl.", "ssl."))]
    if not protocol:
        if others:
            raise SecurityOptionError(
                f"{others[0]} is set, but security.protocol is not",
                hint="set security.protocol to SASL_SSL, SSL or SASL_PLAINTEXT (or PLAINTEXT)",
            )
        return None
    if protocol not in _PROTOCOLS:
        raise SecurityOptionError(
            f"security.protocol {protocol!r} does not exist",
            hint=f"there are {', '.join(_PROTOCOLS)}",
        )
    if protocol == "PLAINTEXT":
        return None
    for name in others:
        if name not in _KNOWN:
            raise SecurityOptionError(
                f"{name} is not supported", hint=f"leave it out; there are {_known_like(name)}"
            )
    return Security(
        tls=_tls(given) if protocol.endswith("SSL") else None,
        password=_password(given) if protocol.startswith("SASL") else None,
    )


def _known_like(name: str) -> str:
    prefix = name.partition(".")[0] + "."
    return ", ".join(sorted(each for each in _KNOWN if each.startswith(prefix)))


# --- passwords ----------------------------------------------------------------------------------


def _password(given: Mapping[str, str]) -> Password:
    mechanism = _one_of(given, "sasl.mechanism", "sasl.mechanisms").upper()
    if mechanism in _OTHER_MECHANISMS:
        raise SecurityOptionError(
            f"sasl.mechanism {mechanism} is not supported: {_OTHER_MECHANISMS[mechanism]}",
            hint="let the broker offer a listener with SCRAM-SHA-512, or with TLS certificates",
        )
    if mechanism not in {"PLAIN", *_SCRAM_HASHES}:
        what = f"{mechanism!r} is not supported" if mechanism else "is not set"
        raise SecurityOptionError(
            f"sasl.mechanism {what}", hint="there are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512"
        )
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    if "sasl.jaas.config" in given:
        if username or password:
            raise SecurityOptionError(
                "sasl.jaas.config and sasl.username both say who we are", hint="keep one of them"
            )
        username, password = _login(given["sasl.jaas.config"], mechanism)
    if not username or not password:
        raise SecurityOptionError(
            f"{mechanism} needs a user name and a password",
            hint="set sasl.username and sasl.password, or sasl.jaas.config",
        )
    return Password(mechanism, username, password)


def _login(text: str, mechanism: str) -> tuple[str, str]:
    """Read the line that Java's clients have their password in; its text is never shown."""
    found = _LOGIN.fullmatch(text)
    if found is None:
        raise SecurityOptionError(
            "sasl.jaas.config cannot be read",
            hint="it looks as: org.apache.kafka.common.security.scram.ScramLoginModule required"
            ' username="NAME" password="PASSWORD"; with the semicolon at its end',
        )
    # Some platforms pack Kafka's classes under a name of their own.
    module = found["module"].rpartition(".")[2]
    if mechanism not in _LOGIN_MODULES.get(module, ()):
        raise SecurityOptionError(
            f"the {module} in sasl.jaas.config is not for {mechanism}",
            hint="PlainLoginModule is for PLAIN, ScramLoginModule for SCRAM-SHA-256 and -512",
        )
    options = {
        name: _unescaped(double or single) or bare
        for name, double, single, bare in _LOGIN_OPTION.findall(found["options"])
    }
    for name in options:
        if name not in {"username", "password"}:
            raise SecurityOptionError(
                f"the option {name!r} in sasl.jaas.config is not supported",
                hint="there are username and password",
            )
    return options.get("username", ""), options.get("password", "")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


# --- certificates -------------------------------------------------------------------------------


def _tls(given: Mapping[str, str]) -> ssl.SSLContext:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        kind = given.get(name, "").upper()
        if kind not in _STORE_TYPES:
            raise SecurityOptionError(
                f"{name} {kind} is not supported; only PEM can be read",
                hint=_STORE_COMMANDS[name],
            )
    protocols = {each.strip() for each in given.get("ssl.enabled.protocols", "").split(",")} - {""}
    for each in protocols:
        if each not in tls.PROTOCOLS:
            raise SecurityOptionError(
                f"ssl.enabled.protocols {each!r} is not supported",
                hint=f"there are {' and '.join(tls.PROTOCOLS)}",
            )
    return tls.make_context(
        trusted=_pem(
            given,
            paths=("ssl.ca.location", "ssl.truststore.location"),
            texts=("ssl.ca.pem", "ssl.truststore.certificates"),
        ),
        identity=_identity(given),
        check_name=_checks_name(given),
        check_certificate=_checks_certificate(given),
        protocols=protocols or set(tls.PROTOCOLS),
    )


_STORE_COMMANDS = {
    "ssl.truststore.type": "make PEM of it: keytool -list -rfc -keystore STORE > authorities.pem,"
    " then ssl.truststore.type=PEM and ssl.truststore.location=authorities.pem",
    "ssl.keystore.type": "make PEM of it: keytool -importkeystore -srckeystore STORE"
    " -deststoretype PKCS12 -destkeystore client.p12 && openssl pkcs12 -in client.p12 -nodes"
    " -out client.pem, then ssl.keystore.type=PEM and ssl.keystore.location=client.pem",
}


def _identity(given: Mapping[str, str]) -> tls.Identity | None:
    certificates = _pem(
        given,
        paths=("ssl.certificate.location", "ssl.keystore.location"),
        texts=("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
    )
    key = _pem(given, paths=("ssl.key.location",), texts=("ssl.key.pem", "ssl.keystore.key"))
    if certificates is None:
        if key is not None:
            raise SecurityOptionError(
                f"{key.option} is set, but no certificate is", hint="set ssl.certificate.location"
            )
        return None
    return tls.Identity(certificates, key or certificates, given.get("ssl.key.password"))


def _checks_name(given: Mapping[str, str]) -> bool:
    algorithm = given.get(_NAME_CHECK, "https").lower()
    if algorithm not in {"https", "none", ""}:
        raise SecurityOptionError(
            f"{_NAME_CHECK} {algorithm!r} does not exist", hint="there are https and none"
        )
    return algorithm == "https"


def _checks_certificate(given: Mapping[str, str]) -> bool:
    name = "enable.ssl.certificate.verification"
    value = given.get(name, "true").lower()
    if value not in {"true", "false"}:
        raise SecurityOptionError(
            f"{name} {value!r} is neither true nor false", hint="leave it out"
        )
    return value == "true"


def _pem(
    given: Mapping[str, str], *, paths: tuple[str, ...], texts: tuple[str, ...]
) -> tls.Pem | None:
    option = next((name for name in (*paths, *texts) if name in given), None)
    if option is None:
        return None
    _one_of(given, *paths, *texts)
    if option in paths:
        return tls.Pem(option, path=given[option])
    return tls.Pem(option, text=given[option])


def _one_of(given: Mapping[str, str], *names: str) -> str:
    found = {name: given[name] for name in names if name in given}
    if len(set(found.values())) > 1:
        raise SecurityOptionError(
            f"{' and '.join(found)} say different things", hint="keep one of them"
        )
    return next(iter(found.values()), "")
