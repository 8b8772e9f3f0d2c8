"""SCRAM's server side, against the client's and against the RFC."""

from base64 import b64decode
from collections.abc import Mapping

import pytest

from ottla.model.errors import OttlaError, ProtocolError, RefusedError
from ottla.model.security.scram import SCRAM_BY_NAME, SCRAM_SHA_256, ScramClient, ScramCredential
from ottla.node.authentication.mechanism import SaslMechanism
from ottla.node.authentication.scram_server import Credentials, ScramExchange, ScramMechanism
from ottla.node.clock_driver import RealRng

NAMES = sorted(SCRAM_BY_NAME)


def mechanism_of(credentials: Credentials | None) -> ScramMechanism:
    return ScramMechanism(SCRAM_SHA_256, lambda: credentials, RealRng())


def log_in(mechanism: SaslMechanism, user: str, password: str) -> str | None:
    """Log in as a client does; return the user that the server authenticated, or None."""
    hashing = SCRAM_BY_NAME[mechanism.name]
    exchange = mechanism.begin()
    client = ScramClient(hashing, user, "clientnonce")
    salt, iterations = client.on_server_first(exchange.respond(client.first).token)
    reply = exchange.respond(client.final(hashing.salted_password(password, salt, iterations)))
    client.check_server_final(reply.token)
    return reply.user


def server_first(mechanism: SaslMechanism, user: str) -> str:
    return mechanism.begin().respond(f"n,,n={user},r=abc".encode()).token.decode()


@pytest.mark.parametrize("name", NAMES)
def test_a_client_and_the_server_convince_each_other(
    mechanisms: Mapping[str, SaslMechanism], name: str
) -> None:
    assert log_in(mechanisms[name], "al", "pw") == "al"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("user", "password"), [("al", "wrong"), ("nosuch", "pw")])
def test_a_wrong_password_and_an_unknown_user_fail_alike(
    mechanisms: Mapping[str, SaslMechanism], name: str, user: str, password: str
) -> None:
    with pytest.raises(ProtocolError):
        log_in(mechanisms[name], user, password)


def test_the_server_says_what_the_rfc_says() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = {"user": ScramCredential.of_password(SCRAM_SHA_256, "pencil", salt, 4096)}
    exchange = ScramExchange(mechanism_of(known), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = exchange.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.token.decode() == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert first.user is None
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = exchange.respond(f"c=biws,r={nonce},p={proof}".encode())
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.user == "user"


def test_an_unknown_user_is_shown_the_same_salt_by_every_broker() -> None:
    known = {
        name: ScramCredential.of_password(SCRAM_SHA_256, "pw", b"0123456789abcdefghijklmnop", 8_192)
        for name in ("al", "zoe")
    }
    shown = {server_first(mechanism_of(dict(known)), "nosuch").partition(",")[2] for _ in range(4)}
    assert len(shown) == 1
    (salt_and_iterations,) = shown
    salt, _, iterations = salt_and_iterations.partition(",")
    assert iterations == "i=8192"
    made_up = b64decode(salt.removeprefix("s="))
    assert len(made_up) == 26
    assert made_up.isalnum()
    assert made_up.islower()


def test_each_unknown_user_has_a_salt_of_its_own() -> None:
    mechanism = mechanism_of({})
    one, other = (server_first(mechanism, user).split(",")[1] for user in ("one", "other"))
    assert one != other
    assert server_first(mechanism, "one").split(",")[1] == one


def test_salts_of_other_tools_are_imitated_too() -> None:
    salt = bytes(range(64))
    known = {"al": ScramCredential.of_password(SCRAM_SHA_256, "pw", salt, 4_096)}
    shown = server_first(mechanism_of(known), "nosuch").split(",")[1]
    assert len(b64decode(shown.removeprefix("s="))) == 64


@pytest.mark.parametrize(
    "final",
    [
        "c=eSws,r={nonce},p={proof}",
        "c=biws,r={nonce}x,p={proof}",
        "c=biws,r=abc,p={proof}",
        "c=biws,r={nonce},p=YWJj",
        "c=biws,r={nonce}",
    ],
)
def test_a_proof_holds_for_its_own_exchange_alone(final: str) -> None:
    known = {"al": ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt", 4_096)}
    exchange = mechanism_of(known).begin()
    client = ScramClient(SCRAM_SHA_256, "al", "abc")
    salt, iterations = client.on_server_first(exchange.respond(client.first).token)
    right = client.final(SCRAM_SHA_256.salted_password("pw", salt, iterations)).decode()
    nonce, proof = right.removeprefix("c=biws,r=").split(",p=")
    with pytest.raises(ProtocolError):
        exchange.respond(final.format(nonce=nonce, proof=proof).encode())


def test_a_proof_is_worth_nothing_in_the_next_exchange() -> None:
    known = {"al": ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt", 4_096)}
    mechanism = mechanism_of(known)
    exchange = mechanism.begin()
    client = ScramClient(SCRAM_SHA_256, "al", "abc")
    salt, iterations = client.on_server_first(exchange.respond(client.first).token)
    proof = client.final(SCRAM_SHA_256.salted_password("pw", salt, iterations))
    assert exchange.respond(proof).user == "al"
    repeated = mechanism.begin()
    repeated.respond(client.first)
    with pytest.raises(ProtocolError):
        repeated.respond(proof)


def test_a_client_cannot_log_in_as_another_user() -> None:
    known = {"al": ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt", 4_096)}
    with pytest.raises(RefusedError, match="authorization id"):
        mechanism_of(known).begin().respond(b"n,a=ben,n=al,r=abc")


def test_a_credential_with_too_few_iterations_authenticates_no_client() -> None:
    known = {"al": ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt", 4_095)}
    with pytest.raises(OttlaError):
        log_in(mechanism_of(known), "al", "pw")


def test_users_are_not_known_before_the_metadata_is() -> None:
    assert not mechanism_of(None).is_ready
    assert mechanism_of({}).is_ready
