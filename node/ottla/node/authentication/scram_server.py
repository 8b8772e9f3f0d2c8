"""Server side of SCRAM (RFC 5802, RFC 7677), with credentials that the caller looks up. Pure.

A login with an unknown user has the same exchange of messages as a login with a wrong password. The
salt and iterations of an unknown user are derived from a secret of the cluster, so every broker
always returns the same values.
"""

import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping

from ottla.model.errors import ProtocolError
from ottla.model.seams import Rng
from ottla.model.security.delegation_tokens import USER_TYPE, DelegationToken
from ottla.model.security.scram import (
    ITERATIONS_MIN,
    ClientFirst,
    ScramCredential,
    ScramHash,
    exclusive_or,
    parse_client_final,
    parse_client_first,
)
from ottla.node.authentication.mechanism import SaslReply, authentication_failed
from ottla.node.authentication.token_credentials import TokenCredentials

Credentials = Mapping[str, ScramCredential]
"""Credentials of users for one SCRAM mechanism, by user name."""

SALT_BYTES = 26
"""Length in bytes of the salt for an unknown user, used if no real credential exists from which a
length could be taken."""

BASE_36 = b"0123456789abcdefghijklmnopqrstuvwxyz"
_BASE_36_ONLY = re.compile(rb"[0-9a-z]+")


class ScramMechanism:
    """SCRAM mechanism of a listener. `credentials` returns None until the metadata log has been
    read."""

    def __init__(
        self,
        hashing: ScramHash,
        credentials: Callable[[], Credentials | None],
        rng: Rng,
        tokens: TokenCredentials | None = None,
    ) -> None:
        self.hashing = hashing
        self.tokens = tokens
        """Delegation tokens that clients may use as SCRAM credentials."""
        self._credentials = credentials
        self._rng = rng
        self._own_secret = rng.uuid().bytes + rng.uuid().bytes
        self._seen: Credentials = {}
        self._pattern: ScramCredential | None = None
        """First of the SCRAM credentials that were last read from the metadata, or None without
        credentials. The derived credentials of unknown users have the same salt length and
        iterations."""

    @property
    def name(self) -> str:
        """Registered name of the SASL mechanism."""
        return self.hashing.name

    @property
    def is_ready(self) -> bool:
        """True if the SCRAM credentials of users have been read from the metadata."""
        return self._credentials() is not None

    def begin(self) -> "ScramExchange":
        """Begin a SCRAM login of one client, and return its exchange of messages."""
        return ScramExchange(self, self._rng.uuid().hex)

    def credential_of(self, user: str) -> tuple[ScramCredential, bool]:
        """Return the SCRAM credential of a user, and whether it is real: an unknown user gets a
        derived credential. Both cases take the same time."""
        made_up = self._credential_of_unknown_user(user, self._refreshed_pattern())
        found = self._seen.get(user)
        return (made_up, False) if found is None else (found, True)

    def _refreshed_pattern(self) -> ScramCredential | None:
        """Update the cached SCRAM credentials, and return the first of them, or None if no
        credential exists. The derived credential of an unknown user resembles the returned one."""
        credentials = self._credentials() or {}
        if credentials is not self._seen:
            self._seen = credentials
            self._pattern = next(iter(credentials.values()), None)
        return self._pattern

    def credential_for(
        self, first: ClientFirst
    ) -> tuple[ScramCredential, bool, DelegationToken | None]:
        """Return three values for a SCRAM login: the credential, True if it is real or False if it
        was derived for an unknown user, and the delegation token or None.

        For an unknown token, this takes the same time as for an unknown user.
        """
        if not first.is_token:
            return (*self.credential_of(first.user), None)
        token = None if self.tokens is None else self.tokens.token_of(first.user)
        if self.tokens is None or token is None:
            return (
                self._credential_of_unknown_user(first.user, self._refreshed_pattern()),
                False,
                None,
            )
        return self.tokens.credential_of(self.hashing, token), True, token

    def _credential_of_unknown_user(
        self, user: str, pattern: ScramCredential | None
    ) -> ScramCredential:
        """Return a SCRAM credential for an unknown user. The credential resembles the first real
        one, and no password matches it.

        It is derived from a key that only brokers know, so that all brokers return the same salt.
        """
        secret = self._own_secret if pattern is None else pattern.server_key
        hashing = self.hashing
        key = hashing.hmac(secret, b"Unknown user" + user.encode())
        length = SALT_BYTES if pattern is None else len(pattern.salt)
        salt = _derived_bytes(hashing, key, length)
        if pattern is None or _BASE_36_ONLY.fullmatch(pattern.salt):
            salt = bytes(BASE_36[byte % len(BASE_36)] for byte in salt)
        iterations = ITERATIONS_MIN if pattern is None else pattern.iterations
        return ScramCredential(salt, key, key, iterations)


class ScramExchange:
    """Exchange of a SCRAM login: two messages from the client, and two responses."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._server_first = ""

    def respond(self, token: bytes) -> SaslReply:
        """Process the client's next SCRAM message, and return the response to it."""
        if self._first is None:
            return self._on_first(token)
        return self._on_final(self._first, token)

    def _on_first(self, token: bytes) -> SaslReply:
        first = parse_client_first(token)
        if first.authorization_id not in ("", first.user):
            raise authentication_failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        credential, _, _ = self._mechanism.credential_for(first)
        if credential.iterations < ITERATIONS_MIN:
            raise ProtocolError("the credential has too few iterations")
        self._first = first
        self._nonce = first.nonce + self._nonce
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return SaslReply(self._server_first.encode())

    def _on_final(self, first: ClientFirst, last: bytes) -> SaslReply:
        final = parse_client_final(last)
        hashing = self._mechanism.hashing
        # Looked up again, so that a credential changed meanwhile is used.
        credential, is_real, token = self._mechanism.credential_for(first)
        message = ",".join((first.bare, self._server_first, final.without_proof)).encode()
        if len(final.proof) != hashing.size:
            raise ProtocolError("the length of the proof")
        signature = hashing.hmac(credential.stored_key, message)
        client_key = exclusive_or(signature, final.proof)
        is_proven = hmac.compare_digest(hashing.digest(client_key), credential.stored_key)
        is_bound = final.channel_binding == first.gs2_header.encode()
        is_same = hmac.compare_digest(final.nonce.encode(), self._nonce.encode())
        if not (is_proven and is_bound and is_same and is_real):
            raise ProtocolError("the client's proof")
        verifier = b64encode(hashing.hmac(credential.server_key, message)).decode()
        answer = f"v={verifier}".encode()
        if token is None:
            return SaslReply(answer, first.user)
        tokens = self._mechanism.tokens
        assert tokens is not None
        owner = token.owner.removeprefix(f"{USER_TYPE}:")
        return SaslReply(answer, owner, tokens.lifetime_ms(token), token.id)


def _derived_bytes(hashing: ScramHash, key: bytes, length: int) -> bytes:
    """Return `length` bytes derived from a secret key, for the credential of an unknown user."""
    blocks = -(-length // hashing.size)
    return b"".join(hashing.hmac(key, b"salt%d" % number) for number in range(blocks))[:length]
