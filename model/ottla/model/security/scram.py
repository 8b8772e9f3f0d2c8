"""SCRAM (RFC 5802, RFC 7677): keys, messages, and the client's side of an exchange. Pure.

A server stores a `ScramCredential`, from which the password cannot be computed. The server's side
of an exchange is in the broker package. User names are encoded as in Kafka: as UTF-8 with `,` and
`=` escaped, without Unicode normalisation. Messages of a peer are bounded by the size of its
requests.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import NamedTuple

from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.values import frozen

ITERATIONS_MIN = 4_096
"""Minimum number of hash iterations that Kafka's servers accept. With fewer iterations, an attacker
can easily compute the password from a stolen credential."""

ITERATIONS_MAX = 16_384
"""Maximum number of hash iterations that Kafka's controllers store. With more iterations, the
client needs more time for each login."""

CLIENT_ITERATIONS_MAX = 1_000_000
"""Maximum number of hash iterations that a client performs because a server demands them. They take
about a second. With a larger limit, a hostile server could demand hours of computation."""

TOKEN_EXTENSION = "tokenauth=true"
"""Extension in a client's first message that announces a login with a delegation token. The token's
HMAC is the password."""

NO_BINDING = "n"
BINDING_NOT_OFFERED = "y"


class ScramHash(NamedTuple):
    """One SCRAM mechanism: Kafka's name and number for it, and its hash function."""

    name: str
    number: int
    hash_name: str

    def digest(self, data: bytes) -> bytes:
        """Return the hash of `data`: H(data) in RFC 5802."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the HMAC of `data` with a key."""
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return the salted password: Hi(password, salt, iterations) in RFC 5802. The computation
        takes milliseconds."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    @property
    def size(self) -> int:
        """Length in bytes of the hashes and keys of this mechanism."""
        return hashlib.new(self.hash_name).digest_size


SCRAM_SHA_256 = ScramHash("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512 = ScramHash("SCRAM-SHA-512", 2, "sha512")

SCRAM_BY_NAME = {one.name: one for one in (SCRAM_SHA_256, SCRAM_SHA_512)}
SCRAM_BY_NUMBER = {one.number: one for one in SCRAM_BY_NAME.values()}


@frozen
class ScramCredential:
    """Stored credential of a user, from which the password cannot be computed."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def from_salted(
        cls, hashing: ScramHash, salted_password: bytes, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Return the credential for a salted password."""
        client_key = hashing.hmac(salted_password, b"Client Key")
        server_key = hashing.hmac(salted_password, b"Server Key")
        return cls(salt, hashing.digest(client_key), server_key, iterations)

    @classmethod
    def of_password(
        cls, hashing: ScramHash, password: str, salt: bytes, iterations: int
    ) -> "ScramCredential":
        """Return the credential for a password, with the given salt and number of iterations."""
        salted = hashing.salted_password(password, salt, iterations)
        return cls.from_salted(hashing, salted, salt, iterations)

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class ClientFirst(NamedTuple):
    """The first message of a client in a SCRAM exchange."""

    gs2_header: str
    authorization_id: str
    user: str
    nonce: str
    bare: str
    """The message without its GS2 header (client-first-message-bare in RFC 5802). The client's
    proof covers it."""
    is_token: bool = False
    """True if the user name is the id of a delegation token."""


class ClientFinal(NamedTuple):
    """The second message of a client in a SCRAM exchange."""

    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


_GS2 = re.compile(r"(n|y|p=[A-Za-z0-9.\-]+),(?:a=([^,]*))?,")
_FIRST = re.compile(r"n=([^,\0]+),r=([\x21-\x2b\x2d-\x7e]+)((?:,.*)?)", re.DOTALL)
_FINAL = re.compile(
    r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*?),p=([A-Za-z0-9+/=]+)"
)
_SERVER_FIRST = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?")
_SERVER_FINAL = re.compile(r"v=([A-Za-z0-9+/=]+)(?:,.*)?")


def parse_client_first(token: bytes) -> ClientFirst:
    """Decode a client's first message. Raises ProtocolError if it is malformed or requests channel
    binding."""
    text = _text_of(token)
    header = _GS2.match(text)
    if header is None or header[1] not in (NO_BINDING, BINDING_NOT_OFFERED):
        raise ProtocolError("client-first-message: its header")
    bare = text[header.end() :]
    found = _FIRST.fullmatch(bare)
    if found is None:
        raise ProtocolError("client-first-message")
    return ClientFirst(
        header[0],
        unescape(header[2] or ""),
        unescape(found[1]),
        found[2],
        bare,
        is_token=TOKEN_EXTENSION in found[3].lower().split(","),
    )


def parse_client_final(token: bytes) -> ClientFinal:
    """Decode a client's second message. Raises ProtocolError if it is malformed."""
    found = _FINAL.fullmatch(_text_of(token))
    if found is None:
        raise ProtocolError("client-final-message")
    return ClientFinal(_bytes_of(found[2]), found[3], _bytes_of(found[4]), found[1])


def escape(name: str) -> str:
    """Return a user name in the escaped form that SCRAM messages use."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(text: str) -> str:
    """Return the user name in an escaped text. Raises ProtocolError if an escape sequence is
    invalid."""
    parts = text.split("=")
    for part in parts[1:]:
        if not part.startswith(("2C", "3D")):
            raise ProtocolError("saslname")
    return parts[0] + "".join(
        ("," if part.startswith("2C") else "=") + part[2:] for part in parts[1:]
    )


def exclusive_or(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two keys of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


class ScramClient:
    """The client's side of one SCRAM exchange. It creates the client's messages and checks the
    server's messages."""

    def __init__(
        self, hashing: ScramHash, user: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._hashing = hashing
        self._nonce = nonce
        self._bare = f"n={escape(user)},r={nonce}{f',{TOKEN_EXTENSION}' if is_token else ''}"
        self._server_first = ""
        self._full_nonce = ""
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        """The client's first message in the SCRAM exchange."""
        return f"{NO_BINDING},,{self._bare}".encode()

    def on_server_first(self, token: bytes) -> tuple[bytes, int]:
        """Return the salt and the number of iterations that the server's first message contains.

        Raises RefusedError if the message is malformed, or if it demands too few or too many
        iterations.
        """
        found = _SERVER_FIRST.fullmatch(_text_of(token))
        if found is None:
            raise _refused("its first message cannot be read")
        nonce, iterations = found[1], int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise _refused("its nonce does not continue ours")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise _refused(f"it asks for {iterations} iterations")
        self._full_nonce = nonce
        self._server_first = found[0]
        return _bytes_of(found[2]), iterations

    def final(self, salted_password: bytes) -> bytes:
        """Return the client's second message in the SCRAM exchange."""
        hashing = self._hashing
        binding = b64encode(f"{NO_BINDING},,".encode()).decode()
        without_proof = f"c={binding},r={self._full_nonce}"
        message = ",".join((self._bare, self._server_first, without_proof)).encode()
        client_key = hashing.hmac(salted_password, b"Client Key")
        proof = exclusive_or(client_key, hashing.hmac(hashing.digest(client_key), message))
        server_key = hashing.hmac(salted_password, b"Server Key")
        self._server_signature = hashing.hmac(server_key, message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def check_server_final(self, token: bytes) -> None:
        """Check the server's final message. Raises RefusedError unless it proves that the server
        knows the user's keys."""
        found = _SERVER_FINAL.fullmatch(_text_of(token))
        if found is None or not hmac.compare_digest(_bytes_of(found[1]), self._server_signature):
            raise _refused("it does not know the user's keys")


def _refused(why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.SASL_AUTHENTICATION_FAILED, f"The broker is not to be trusted: {why}."
    )


def _text_of(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a SCRAM message is no UTF-8") from None


def _bytes_of(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise ProtocolError("base64 of a SCRAM message") from None
