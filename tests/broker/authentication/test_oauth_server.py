"""OAUTHBEARER's server side: accepted tokens, and the error that a client gets for a refused
one."""

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.security.jwt_claims import ClaimRules, TokenFault
from ottla.model.security.oauthbearer import INVALID_TOKEN, bearer_message
from ottla.node.authentication.jwks import KeySource, parse_jwks
from ottla.node.authentication.mechanism import SaslReply
from ottla.node.authentication.oauth_server import OAuthMechanism

RULES = ClaimRules(audiences=("ottla",), issuer="https://issuer.example")


def now_ms() -> int:
    return int(time.time() * 1_000)


def mechanism_of(jwks: bytes) -> OAuthMechanism:
    source = KeySource("https://keys")
    source.keys = parse_jwks(jwks)
    return OAuthMechanism(source, RULES, now_ms)


@pytest.fixture(scope="session")
def server(issuer: Any) -> OAuthMechanism:
    return mechanism_of(issuer.jwks())


def fault_of(mechanism: OAuthMechanism, token: str) -> TokenFault:
    """Return why a token is not taken, after its exchange has ended as Kafka's does."""
    before = mechanism.faults.copy()
    exchange = mechanism.begin()
    assert exchange.respond(bearer_message(token)) == SaslReply(INVALID_TOKEN)
    with pytest.raises(RefusedError, match="invalid_token") as caught:
        exchange.respond(b"\x01")
    assert caught.value.code == 58
    (found,) = (mechanism.faults - before).elements()
    return found


def forged(header: dict[str, Any], claims: dict[str, Any], sign: Any = lambda data: b"") -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=")
        for one in (header, claims)
    ]
    signature = base64.urlsafe_b64encode(sign(".".join(parts).encode())).decode().rstrip("=")
    return ".".join((*parts, signature))


def claims_of(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_of_a_known_key_is_taken(
    server: OAuthMechanism, issuer: Any, algorithm: str
) -> None:
    reply = server.begin().respond(bearer_message(issuer.token(algorithm=algorithm, lasts_s=60)))
    assert (reply.token, reply.user) == (b"", "al")
    assert reply.lifetime_ms is not None
    assert 50_000 < reply.lifetime_ms <= 60_000


def test_an_authorization_id_must_be_the_tokens_user(server: OAuthMechanism, issuer: Any) -> None:
    message = bearer_message(issuer.token())
    assert server.begin().respond(message.replace(b"n,,", b"n,a=al,", 1)).user == "al"
    with pytest.raises(RefusedError, match="different from the token's principal name"):
        server.begin().respond(message.replace(b"n,,", b"n,a=ben,", 1))


@pytest.mark.parametrize(
    ("claims", "fault"),
    [
        ({"iss": "https://other.example"}, TokenFault.ISSUER),
        ({"aud": "other"}, TokenFault.AUDIENCE),
        ({"lasts_s": -60}, TokenFault.EXPIRED),
        ({"sub": None}, TokenFault.CLAIMS),
        ({"key_id": "nosuch"}, TokenFault.UNKNOWN_KEY),
        ({"key_id": "ES256"}, TokenFault.ALGORITHM),
    ],
)
def test_a_token_that_is_not_as_demanded_is_not_taken(
    server: OAuthMechanism, issuer: Any, claims: dict[str, Any], fault: TokenFault
) -> None:
    assert fault_of(server, issuer.token(**claims)) is fault


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "HS512", "RSA-OAEP"])
def test_algorithms_without_a_public_key_are_refused(
    server: OAuthMechanism, issuer: Any, algorithm: str
) -> None:
    claims = claims_of(issuer.token())
    token = forged({"alg": algorithm, "kid": "RS256"}, claims)
    assert fault_of(server, token) is TokenFault.ALGORITHM


def test_a_public_key_is_no_secret_of_an_hmac(server: OAuthMechanism, issuer: Any) -> None:
    public = issuer.keys["RS256"].public_key()
    for secret in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(issuer.row("RS256")).encode(),
    ):

        def sign(data: bytes, secret: bytes = secret) -> bytes:
            return hmac.digest(secret, data, hashlib.sha256)

        token = forged({"alg": "HS256", "kid": "RS256"}, claims_of(issuer.token()), sign)
        assert fault_of(server, token) is TokenFault.ALGORITHM


def test_a_token_that_brings_its_own_key_is_not_taken(server: OAuthMechanism, issuer: Any) -> None:
    own = rsa.generate_private_key(65_537, 2_048)
    row = json.loads(RSAAlgorithm.to_jwk(own.public_key()))
    algorithm = RSAAlgorithm(RSAAlgorithm.SHA256)
    token = forged(
        {"alg": "RS256", "kid": "RS256", "jwk": row, "jku": "https://evil.example"},
        claims_of(issuer.token()),
        lambda data: algorithm.sign(data, own),
    )
    assert fault_of(server, token) is TokenFault.SIGNATURE


def test_a_token_that_was_changed_is_not_taken(server: OAuthMechanism, issuer: Any) -> None:
    header, body, signature = issuer.token().split(".")
    other = issuer.token("root").split(".")[1]
    assert fault_of(server, f"{header}.{other}.{signature}") is TokenFault.SIGNATURE
    assert fault_of(server, f"{header}.{body}.") is TokenFault.SIGNATURE
    assert fault_of(server, f"{header}.{body}") is TokenFault.MALFORMED


def test_critical_extensions_that_are_not_known_are_refused(
    server: OAuthMechanism, issuer: Any
) -> None:
    header = {"alg": "RS256", "kid": "RS256", "crit": ["b64"], "b64": False}
    assert fault_of(server, forged(header, claims_of(issuer.token()))) is TokenFault.ALGORITHM


def test_an_unknown_key_is_wanted_and_a_known_one_is_not(issuer: Any) -> None:
    server, wanted = mechanism_of(issuer.jwks("RS256")), []
    assert server._keys is not None
    server._keys.on_wanted = lambda: wanted.append(1)
    assert server.begin().respond(bearer_message(issuer.token())).user == "al"
    assert wanted == []
    assert fault_of(server, issuer.token(algorithm="ES256")) is TokenFault.UNKNOWN_KEY
    assert wanted == [1]


def test_before_the_keys_are_read_no_login_begins() -> None:
    source = KeySource("https://keys")
    assert not OAuthMechanism(source, RULES, now_ms).is_ready
    assert OAuthMechanism(None, RULES, now_ms).is_ready


def test_unsecured_tokens_are_taken_only_where_asked_for(issuer: Any) -> None:
    unsecured = OAuthMechanism(None, RULES, now_ms)
    token = forged({"alg": "none"}, claims_of(issuer.token()))
    assert unsecured.begin().respond(bearer_message(token)).user == "al"
    assert fault_of(unsecured, issuer.token()) is TokenFault.ALGORITHM
    assert fault_of(unsecured, f"{token}AAAA") is TokenFault.ALGORITHM


def test_keys_that_are_no_public_keys_for_signatures_do_not_count(issuer: Any) -> None:
    good = issuer.row("RS256")
    small = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65_537, 1_024).public_key()))
    rows = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {**good, "kid": "encryption", "use": "enc"},
        {**small, "kid": "small"},
        {**good, "kid": "private", "d": "AQAB"},
        {**good, "kid": "mixed", "alg": "ES256"},
        {**good, "kid": "oaep", "alg": "RSA-OAEP"},
        {**good, "kid": 7},
        {**good, "kid": "broken", "n": "?"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "no point"},
        "no object",
        good,
    ]
    found = parse_jwks(json.dumps({"keys": rows}).encode())
    assert [one.key_id for one in found] == ["RS256"]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[]}', b'{"keys":[7]}', b"[" * 100_000]
)
def test_what_has_no_key_is_no_jwks(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        parse_jwks(data)


def test_without_a_key_id_the_only_fitting_key_counts(issuer: Any) -> None:
    header = {"alg": "EdDSA"}
    token = forged(header, claims_of(issuer.token()), issuer.keys["EdDSA"].sign)
    both = json.loads(issuer.jwks("EdDSA"))["keys"]
    assert mechanism_of(issuer.jwks()).begin().respond(bearer_message(token)).user == "al"
    twins = json.dumps({"keys": [*both, {**both[0], "kid": "twin"}]}).encode()
    assert fault_of(mechanism_of(twins), token) is TokenFault.UNKNOWN_KEY
