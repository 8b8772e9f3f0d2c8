"""SCRAM and PLAIN users for the authentication tests, and an issuer of tokens."""

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from ottla.model.security.scram import SCRAM_BY_NAME, ScramCredential
from ottla.node.authentication.mechanism import SaslMechanism
from ottla.node.authentication.plain import PlainMechanism
from ottla.node.authentication.sasl_session import SaslCounts, SaslRules, SaslSession
from ottla.node.authentication.scram_server import ScramMechanism
from ottla.node.clock_driver import RealRng

SALT = b"3jkkpkavuwlq5rd8g1kvdaamxh"


@pytest.fixture(scope="session")
def mechanisms() -> Mapping[str, SaslMechanism]:
    """PLAIN and SCRAM with the user al, whose password is pw."""
    found: dict[str, SaslMechanism] = {"PLAIN": PlainMechanism({"al": "pw", "ben": "pw2"})}
    for name, hashing in SCRAM_BY_NAME.items():
        credentials = {"al": ScramCredential.of_password(hashing, "pw", SALT, 4_096)}
        found[name] = ScramMechanism(hashing, partial(dict, credentials), RealRng())
    return found


@pytest.fixture
def rules(mechanisms: Mapping[str, SaslMechanism]) -> SaslRules:
    """SASL rules of the listener under test, whose sessions do not expire."""
    return SaslRules(mechanisms=mechanisms, session_ms_max={}, counts=SaslCounts())


ANNOUNCED_MS = 2_000
"""Announced lifetime of a session: twice the least time between two renewals."""


@pytest.fixture
def sessions_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announce a shorter session lifetime to clients than the broker enforces.

    librdkafka renews at 90 % of the announced lifetime: its margin is 200 ms of two seconds, which
    a busy machine misses.  With this fixture the margin is the broker's own lifetime, a minute.
    `test_sasl_session.py` tests in virtual time that a session ends at its announced end.
    """
    kept = SaslSession._authenticated

    def shortened(session: SaslSession, *values: Any, **named: Any) -> int:
        return min(kept(session, *values, **named), ANNOUNCED_MS)

    monkeypatch.setattr(SaslSession, "_authenticated", shortened)


ISSUER, AUDIENCE = "https://issuer.example", "ottla"


class Issuer:
    """An identity provider: a key for each family of algorithms, named after its algorithm."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "RS256": rsa.generate_private_key(65_537, 2_048),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
        }

    def row(self, name: str) -> dict[str, Any]:
        """Return the public part of a key, as a JWKS has it."""
        public = self.keys[name].public_key()
        kinds: dict[str, Any] = {"RS": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}
        found: dict[str, Any] = json.loads(kinds[name[:2]].to_jwk(public))
        return {**found, "kid": name}

    def jwks(self, *names: str) -> bytes:
        """Return a JWKS of these keys, or of all."""
        return json.dumps({"keys": [self.row(name) for name in names or self.keys]}).encode()

    def token(
        self,
        user: str = "al",
        *,
        algorithm: str = "RS256",
        key_id: str | None = None,
        lasts_s: float = 3_600,
        **claims: Any,
    ) -> str:
        """Return a signed token; a claim that is None is left out."""
        now_s = time.time()
        body = {
            "sub": user,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": int(now_s),
            "exp": now_s + lasts_s,
            **claims,
        }
        body = {name: value for name, value in body.items() if value is not None}
        headers = {"kid": key_id or algorithm}
        return jwt.encode(body, self.keys[algorithm], algorithm, headers=headers)


@pytest.fixture(scope="session")
def issuer() -> Issuer:
    """Return an identity provider."""
    return Issuer()
