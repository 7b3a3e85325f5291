"""What is said about passwords, against the examples of the RFCs and brokers that cheat."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.client import sasl
from headwater.delivery.client.errors import AuthenticationError

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def pencil() -> sasl.Conversation:
    return sasl.scram("user", "pencil", hash_name="sha256", nonce=NONCE)


def answer(conversation: sasl.Conversation, text: str) -> str:
    return conversation.send(text.encode()).decode()


def test_plain() -> None:
    conversation = sasl.plain("user", "päss")
    assert next(conversation) == b"\0user\0p\xc3\xa4ss"
    with pytest.raises(StopIteration):
        conversation.send(b"")


def test_the_example_of_rfc_7677() -> None:
    conversation = pencil()
    assert next(conversation) == f"n,,n=user,r={NONCE}".encode()
    assert answer(conversation, SERVER_FIRST) == (
        f"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        conversation.send(SERVER_FINAL.encode())


def test_names_with_the_characters_of_the_grammar() -> None:
    conversation = sasl.scram("a=b,c", "x", hash_name="sha512", nonce="n")
    assert next(conversation) == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    "server_first, complaint",
    [
        ("r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "replay"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "replay"),
        (f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", "4095 iterations"),
        (f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000", "iterations"),
        (f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many", "not SCRAM"),
        (f"r={NONCE}x,s=?,i=4096", "not SCRAM"),
        (f"r={NONCE}x,i=4096", "not SCRAM"),
        ("e=unknown-user", "not SCRAM"),
        ("", "not SCRAM"),
        ("\udcff", "not SCRAM"),
    ],
)
def test_a_broker_that_begins_wrongly(server_first: str, complaint: str) -> None:
    conversation = pencil()
    next(conversation)
    with pytest.raises(AuthenticationError, match=complaint):
        conversation.send(server_first.encode(errors="surrogateescape"))


@pytest.mark.parametrize("server_final", ["v=AAAA", "", "e=invalid-proof", "x" + SERVER_FINAL])
def test_a_broker_that_does_not_know_the_password(server_final: str) -> None:
    conversation = pencil()
    next(conversation)
    answer(conversation, SERVER_FIRST)
    with pytest.raises(AuthenticationError, match="could not prove"):
        conversation.send(server_final.encode())


@given(
    password=st.text(min_size=1),
    salt=st.binary(min_size=1, max_size=40),
    hash_name=st.sampled_from(["sha256", "sha512"]),
)
def test_the_proof_is_what_a_broker_expects(password: str, salt: bytes, hash_name: str) -> None:
    """A broker keeps two keys and never the password: it checks as RFC 5802, section 3, says."""
    password = password.encode(errors="replace").decode()
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, 4096)
    stored = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    conversation = sasl.scram("user", password, hash_name=hash_name, nonce="ours")
    client_first = next(conversation).decode().removeprefix("n,,")
    server_first = f"r=oursandtheirs,s={base64.b64encode(salt).decode()},i=4096"
    without_proof, _, proof = answer(conversation, server_first).partition(",p=")
    signed = f"{client_first},{server_first},{without_proof}".encode()
    signature = hmac.digest(stored, signed, hash_name)
    key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(hash_name, key).digest() == stored
