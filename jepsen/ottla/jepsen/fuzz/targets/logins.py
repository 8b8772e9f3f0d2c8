"""Fuzz targets of logins: SASL frames, SCRAM messages, and OAUTHBEARER tokens from unauthenticated
clients.

The target `LOGINS` sends frames through a listener's authentication with every mechanism. A login
may succeed only with a proof taken from the valid example inputs. `SCRAM` reads the messages of
both sides. `JWTS` reads messages, tokens, keys, and claims that are signed with the targets' own
signing key.
"""

import base64
import json
import struct
from collections.abc import Iterator
from functools import cache, partial
from random import Random
from typing import Any

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.target import FuzzTarget, joined, number_of, numbered, parts_of
from ottla.model.errors import CorruptDataError, ProtocolError, RefusedError
from ottla.model.security.acls import ANONYMOUS_USER
from ottla.model.security.jwt_claims import ClaimRules, TokenFaultError
from ottla.model.security.oauthbearer import (
    OAUTHBEARER,
    bearer_message,
    parse_bearer_message,
    parse_token,
)
from ottla.model.security.scram import (
    ITERATIONS_MIN,
    SCRAM_BY_NAME,
    SCRAM_SHA_256,
    ScramClient,
    ScramCredential,
    parse_client_final,
    parse_client_first,
)
from ottla.node.authentication.jwks import KeySource, parse_jwks
from ottla.node.authentication.mechanism import SaslMechanism
from ottla.node.authentication.oauth_server import OAuthMechanism
from ottla.node.authentication.plain import PlainMechanism
from ottla.node.authentication.sasl_session import (
    SaslCounts,
    SaslRules,
    SaslSession,
    SaslState,
)
from ottla.node.authentication.scram_server import ScramMechanism
from ottla.node.network.dispatch import Peer
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest

LENGTH = struct.Struct(">i")
NOW_MS = 1_700_000_000_000
SALT = b"3jkkpkavuwlq5rd8g1kvdaamxh"
CLAIMS = {"sub": "al", "iat": NOW_MS // 1_000, "exp": NOW_MS // 1_000 + 60, "aud": ["ottla"]}
RULES = ClaimRules(audiences=("ottla",))


@cache
def signing_key() -> Any:
    """Return the key with which the fuzz targets sign tokens. The key is the same in every
    process."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@cache
def jwks() -> bytes:
    """Return the JWKS (JSON Web Key Set) that contains the public key of the signing key."""
    public = signing_key().public_key().public_bytes_raw()
    row = {"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": encoded(public)}
    return json.dumps({"keys": [row]}).encode()


def encoded(data: bytes) -> str:
    """Return bytes encoded as base64url without padding, as in tokens."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(claims: bytes) -> str:
    """Return a token that contains `claims` and is signed with the targets' signing key."""
    header = encoded(b'{"alg":"EdDSA","kid":"k"}')
    body = f"{header}.{encoded(claims)}"
    return f"{body}.{encoded(signing_key().sign(body.encode()))}"


@cache
def mechanisms() -> dict[str, SaslMechanism]:
    """Return every SASL mechanism, configured with the user `al`."""
    found: dict[str, SaslMechanism] = {"PLAIN": PlainMechanism({"al": "pw"})}
    for name, hashing in SCRAM_BY_NAME.items():
        credential = ScramCredential.of_password(hashing, "pw", SALT, ITERATIONS_MIN)
        given: dict[str, ScramCredential] = {"al": credential}
        users: partial[dict[str, ScramCredential]] = partial(dict, given)
        found[name] = ScramMechanism(hashing, users, FuzzRng(Random(0)))
    found[OAUTHBEARER] = oauth()
    return found


@cache
def oauth() -> OAuthMechanism:
    """Return the OAUTHBEARER mechanism that accepts tokens signed with the targets' signing key."""
    source = KeySource("https://keys")
    source.keys = parse_jwks(jwks())
    return OAuthMechanism(source, RULES, lambda: NOW_MS)


# Frames through the guard of a connection.


def _check_frames(data: bytes) -> None:
    rules = SaslRules(
        mechanisms=mechanisms(),
        session_ms_max={"PLAIN": 5_000},
        counts=SaslCounts(),
    )
    peer = Peer(
        connection_id=1,
        listener_name="OUT",
        peer_host="10.0.0.1",
        peer_port=1,
        local_host="10.0.0.2",
        local_port=2,
    )
    session = SaslSession(rules, peer)
    at, now_ms = 0, 0
    while at + 4 <= len(data):
        (length,) = LENGTH.unpack_from(data, at)
        least = session.frame_bytes_min
        if not (8 if least is None else least) <= length <= len(data) - at - 4:
            raise ProtocolError("length")
        frame = memoryview(data)[at + 4 : at + 4 + length]
        at += 4 + length
        now_ms += 700
        session.on_frame(frame, now_ms)
        is_known = session.state in (SaslState.DONE,) or rules.counts.successes > 0
        assert (peer.user != ANONYMOUS_USER) == is_known
        assert peer.user in (ANONYMOUS_USER, "al"), "a user that nothing proves"
        if session.is_done:
            return


def _framed(message: Message, version: int) -> bytes:
    header = encode_request_header(message.API_KEY, version, 7, "fuzz")
    body = header + encode(message, version)
    return LENGTH.pack(len(body)) + body


def _tokens_of(mechanism: str) -> tuple[bytes, ...]:
    if mechanism == "PLAIN":
        return (b"\0al\0pw",)
    if mechanism == OAUTHBEARER:
        return (bearer_message(signed(json.dumps(CLAIMS).encode())), b"\x01")
    client = ScramClient(SCRAM_BY_NAME[mechanism], "al", "fuzz")
    return (client.first, b"c=biws,r=fuzzx,p=AAAA")


def _frame_seeds(random: Random) -> Iterator[bytes]:
    for mechanism in mechanisms():
        for handshake, version in ((1, 0), (1, 2), (0, 0)):
            frames = _framed(ApiVersionsRequest(), 3)
            frames += _framed(SaslHandshakeRequest(mechanism=mechanism), handshake)
            for token in _tokens_of(mechanism):
                if handshake:
                    frames += _framed(SaslAuthenticateRequest(auth_bytes=token), version)
                else:
                    frames += LENGTH.pack(len(token)) + token
            yield frames
            yield frames + _framed(MetadataRequest(topics=None), 9)
            yield frames * 2


LOGINS = FuzzTarget(
    name="logins",
    sentence="SASL frames through the guard of a listener with every mechanism",
    check=_check_frames,
    seeds=_frame_seeds,
    refusals=(ProtocolError,),
)


# SCRAM's messages.


def _check_scram(data: bytes) -> None:
    which, body = number_of(data, 4), data[2:]
    if which == 0:
        first = parse_client_first(body)
        assert "=" not in first.user or first.user == "al" or "=3D" in body.decode()
    elif which == 1:
        parse_client_final(body)
    elif which == 2:
        first_message, last_message = parts_of(body, 2)
        exchange = mechanisms()["SCRAM-SHA-256"].begin()
        exchange.respond(first_message)
        reply = exchange.respond(last_message)
        assert reply.user is None, "a login without the password"
    else:
        first_message, last_message = parts_of(body, 2)
        client = ScramClient(SCRAM_SHA_256, "al", "fuzz")
        salt, _ = client.on_server_first(first_message)
        client.final(SCRAM_SHA_256.hmac(salt, b"not the password"))
        client.check_server_final(last_message)
        raise AssertionError("a server without the password is trusted")


def _scram_seeds(random: Random) -> Iterator[bytes]:
    firsts = (
        b"n,,n=al,r=fyko+d2lbbFgONRv9qkxdawL",
        b"n,a=al,n=al,r=abc,tokenauth=true",
        b"y,,n=a=2Cl=3D,r=abc,ext=1",
    )
    finals = (b"c=biws,r=abcdef,p=" + base64.b64encode(bytes(32)), b"c=biws,r=a,x=1,p=AAAA")
    servers = (b"r=fuzzabc,s=QSXCR+Q6sek8bf92,i=4096", b"r=fuzzabc,s=AAAA,i=16384,x=1")
    ends = (b"v=" + base64.b64encode(bytes(32)), b"e=other-error")
    return numbered(
        (
            firsts,
            finals,
            (joined(one, other) for one in firsts for other in finals),
            (joined(one, other) for one in servers for other in ends),
        )
    )


SCRAM = FuzzTarget(
    name="scram",
    sentence="SCRAM messages of clients and servers",
    check=_check_scram,
    seeds=_scram_seeds,
    refusals=(ProtocolError, RefusedError),
)


# Tokens.


def _check_jwt(data: bytes) -> None:
    which, body = number_of(data, 5), data[2:]
    if which == 0:
        message = parse_bearer_message(body)
        assert parse_bearer_message(bearer_message(message.token)).token == message.token
    elif which == 1:
        parse_token(body.decode("latin-1"))
    elif which == 2:
        keys = parse_jwks(body)
        assert keys
    elif which == 3:
        # Any claims that a trusted issuer signed.
        proven, lifetime_ms = oauth().check(signed(body))
        assert proven.user
        assert lifetime_ms >= 0
    else:
        oauth().check(body.decode("latin-1"))


def _jwt_seeds(random: Random) -> Iterator[bytes]:
    claims = [
        json.dumps({**CLAIMS, **more}).encode()
        for more in ({}, {"nbf": 1}, {"scope": ["a"]}, {"exp": 1e300}, {"aud": "ottla"})
    ]
    tokens = [signed(one) for one in claims]
    rsa = b'{"keys":[{"kty":"RSA","kid":"r","use":"sig","alg":"RS256","n":"AQAB","e":"AQAB"}]}'
    ec = b'{"keys":[{"kty":"EC","kid":"e","crv":"P-256","x":"AAAA","y":"AAAA"}]}'
    return numbered(
        (
            (bearer_message(one, {"a": "b"}) for one in tokens),
            (one.encode() for one in tokens),
            (jwks(), rsa, ec),
            claims,
            (one.encode() for one in tokens),
        )
    )


JWTS = FuzzTarget(
    name="jwts",
    sentence="OAUTHBEARER messages and tokens, their signing keys, and their claims",
    check=_check_jwt,
    seeds=_jwt_seeds,
    refusals=(ProtocolError, CorruptDataError, TokenFaultError),
)
