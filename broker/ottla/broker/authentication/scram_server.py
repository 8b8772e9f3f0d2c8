"""SCRAM's server side (RFC 5802, RFC 7677), with credentials that the caller looks up.  Pure.

A user who does not exist is led through the same exchange as one with a wrong password: salt and
iterations are made up from a secret of the cluster, the same at every broker and every time.
"""

import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping

from ottla.broker.authentication.mechanism import SaslReply, authentication_failed
from ottla.model.errors import ProtocolError
from ottla.model.scram import (
    ITERATIONS_MIN,
    ClientFirst,
    ScramCredential,
    ScramHash,
    exclusive_or,
    parse_client_final,
    parse_client_first,
)
from ottla.model.seams import Rng

Credentials = Mapping[str, ScramCredential]
"""The credentials of one mechanism, by user."""

SALT_BYTES = 26
"""Length of a made-up salt where no real one shows how long they are."""

BASE_36 = b"0123456789abcdefghijklmnopqrstuvwxyz"
_BASE_36_ONLY = re.compile(rb"[0-9a-z]+")


class ScramMechanism:
    """One SCRAM mechanism.  `credentials` returns None until the metadata log has been read."""

    def __init__(
        self, hashing: ScramHash, credentials: Callable[[], Credentials | None], rng: Rng
    ) -> None:
        self.hashing = hashing
        self._credentials = credentials
        self._rng = rng
        self._own_secret = rng.uuid().bytes + rng.uuid().bytes
        self._seen: Credentials = {}
        self._pattern: ScramCredential | None = None
        """The first of the credentials that were seen last."""

    @property
    def name(self) -> str:
        """Its registered name."""
        return self.hashing.name

    @property
    def is_ready(self) -> bool:
        """Whether the credentials are known."""
        return self._credentials() is not None

    def begin(self) -> "ScramExchange":
        """Begin a login."""
        return ScramExchange(self, self._rng.uuid().hex)

    def credential_of(self, user: str) -> tuple[ScramCredential, bool]:
        """Return a user's credential, and whether it is a real one; both cost the same."""
        credentials = self._credentials() or {}
        if credentials is not self._seen:
            self._seen = credentials
            self._pattern = next(iter(credentials.values()), None)
        made_up = self._made_up(user, self._pattern)
        found = credentials.get(user)
        return (made_up, False) if found is None else (found, True)

    def _made_up(self, user: str, pattern: ScramCredential | None) -> ScramCredential:
        """Return a credential that looks like the first real one, and that no password fits.

        Its secret is a key that every broker knows and no client, so that all show the same salt.
        """
        secret = self._own_secret if pattern is None else pattern.server_key
        hashing = self.hashing
        key = hashing.hmac(secret, b"Unknown user" + user.encode())
        length = SALT_BYTES if pattern is None else len(pattern.salt)
        salt = _stretched(hashing, key, length)
        if pattern is None or _BASE_36_ONLY.fullmatch(pattern.salt):
            salt = bytes(BASE_36[byte % len(BASE_36)] for byte in salt)
        iterations = ITERATIONS_MIN if pattern is None else pattern.iterations
        return ScramCredential(salt, key, key, iterations)


class ScramExchange:
    """One login: two messages of the client, two answers."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        self._first: ClientFirst | None = None
        self._server_first = ""

    def respond(self, token: bytes) -> SaslReply:
        """Answer the client's next message."""
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
        credential, _ = self._mechanism.credential_of(first.user)
        if credential.iterations < ITERATIONS_MIN:
            raise ProtocolError("the credential has too few iterations")
        self._first = first
        self._nonce = first.nonce + self._nonce
        salt = b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return SaslReply(self._server_first.encode())

    def _on_final(self, first: ClientFirst, token: bytes) -> SaslReply:
        final = parse_client_final(token)
        hashing = self._mechanism.hashing
        # Looked up again: a credential that was changed meanwhile is the one that holds.
        credential, is_real = self._mechanism.credential_of(first.user)
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
        return SaslReply(f"v={verifier}".encode(), first.user)


def _stretched(hashing: ScramHash, key: bytes, length: int) -> bytes:
    """Return `length` bytes that follow from a key."""
    blocks = -(-length // hashing.size)
    return b"".join(hashing.hmac(key, b"salt%d" % number) for number in range(blocks))[:length]
