"""How a client proves that it knows a password: PLAIN and SCRAM.

This file alone decides what is said in such a conversation. It sends nothing: a conversation is a
generator that yields what to send and is sent what was answered; when it ends, both sides are
content. Which one is held, and with whose password, is chosen by whoever starts it.

SCRAM is RFC 5802 and 7677 without channel binding. As Kafka's own clients do, it takes names and
passwords as they are, in UTF-8, without the preparation that the RFC describes.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator

from headwater.delivery.client.errors import AuthenticationError

Conversation = Generator[bytes, bytes, None]

# Kafka's brokers store passwords with no fewer, so that a stolen one is expensive to guess.
_ITERATIONS_MIN = 4096
# Above this a dishonest broker could keep us computing: 0.3 s with SHA-512 on a slow core.
_ITERATIONS_MAX = 1_000_000
_NO_CHANNEL_BINDING = "n,,"


def plain(username: str, password: str) -> Conversation:
    """Say the password; whoever listens learns it, so the connection should have TLS."""
    yield f"\0{username}\0{password}".encode()


def scram(username: str, password: str, *, hash_name: str, nonce: str) -> Conversation:
    """Prove that the password is known without saying it, and that the broker knows it too.

    Args:
        username: Who we are.
        password: What proves it.
        hash_name: The hash by hashlib's name: sha256 or sha512.
        nonce: Something that was never used before, without a comma.

    Raises:
        AuthenticationError: The broker does not know the password itself, or speaks no SCRAM.
    """
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"{_NO_CHANNEL_BINDING}{client_first}".encode()).decode(errors="replace")
    fields = _fields(server_first)
    try:
        both_nonces, iterations = fields["r"], int(fields["i"])
        salt = base64.b64decode(fields["s"], validate=True)
    except (KeyError, ValueError, binascii.Error) as error:
        raise _not_scram(server_first) from error
    if not both_nonces.startswith(nonce) or both_nonces == nonce:
        raise AuthenticationError("the broker answered another client's question: a replay")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise AuthenticationError(
            f"the broker stores the password with {iterations} iterations, not"
            f" {_ITERATIONS_MIN} to {_ITERATIONS_MAX}",
            hint="set the user's password again, with at least 4096 iterations",
        )
    binding = base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()
    client_final = f"c={binding},r={both_nonces}"
    signed = f"{client_first},{server_first},{client_final}".encode()
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(ours ^ other for ours, other in zip(client_key, signature, strict=True))
    encoded_proof = base64.b64encode(proof).decode()
    server_final = (yield f"{client_final},p={encoded_proof}".encode()).decode(errors="replace")
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = base64.b64encode(hmac.digest(server_key, signed, hash_name)).decode()
    if not hmac.compare_digest(_fields(server_final).get("v", ""), expected):
        raise AuthenticationError(
            "the broker could not prove that it knows the password",
            hint="it may not be the broker that it claims to be: check the address, and use TLS",
        )


def _fields(message: str) -> dict[str, str]:
    """Read ``a=b,c=d``; values may contain an equals sign."""
    return dict(part.partition("=")[::2] for part in message.split(","))


def _not_scram(message: str) -> AuthenticationError:
    return AuthenticationError(f"the broker's answer is not SCRAM: {message[:60]!r}")
