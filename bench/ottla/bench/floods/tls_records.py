"""TLS records that no library sends, encrypted with the keys of a real handshake.

`RecordClient` performs a handshake with Python's `ssl` and a key log. Then it encrypts records
itself, of any content type and length, and in any order (RFC 8446 §5 for TLS 1.3; RFC 5246 §6 and
RFC 5288 for TLS 1.2). `FLOODS` is the table of the record sequences that it can send. The tests
check a limit on the cost of these sequences to a server (`tls_hold.py`).
"""

import hmac
import ssl
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, DATA = 20, 21, 22, 23
TLS_1_0, TLS_1_2 = 0x0301, 0x0303
CIPHERS = "ECDHE+AESGCM"

USER_CANCELED = bytes((1, 90))
"""TLS alert of level warning, which does not close the connection."""
KEEP_YOUR_KEYS = bytes((24, 0, 0, 1, 0))
"""TLS KeyUpdate message that requests no update in return. Its sender uses new keys afterwards."""
CLIENT_HELLO = (
    bytes((1, 0, 0, 42)) + b"\x03\x03" + bytes(32) + b"\x00\x00\x02\xc0\x2f\x01\x00\x00\x00"
)
"""TLS ClientHello that OpenSSL parses completely. It requests a handshake within a TLS 1.2
session."""

_RECORD_HEADER = struct.Struct(">BHH")
_SEQUENCE = struct.Struct(">Q")


def record(content_type: int, data: bytes, version: int = TLS_1_2) -> bytes:
    """Return an unencrypted TLS record with the given type and content."""
    return _RECORD_HEADER.pack(content_type, version, len(data)) + data


class WriteKeys:
    """The keys that encrypt one direction of a TLS connection, and the sequence number of the next
    record."""

    def __init__(self, version: str, key: bytes, iv: bytes, digest: str, secret: bytes) -> None:
        self.is_newest = version == "TLSv1.3"
        self._cipher, self._iv = AESGCM(key), iv
        self._digest, self._secret = digest, secret
        self._count = 0 if self.is_newest else 1
        """Sequence number of the next TLS record. In TLS 1.2, these keys have already encrypted one
        record, the Finished message."""

    @classmethod
    def of_secret(cls, secret: bytes, digest: str, key_bytes: int) -> "WriteKeys":
        """Return the keys that TLS 1.3 derives from a traffic secret (RFC 8446 §7.3)."""
        key = expand_label(secret, "key", key_bytes, digest)
        return cls("TLSv1.3", key, expand_label(secret, "iv", 12, digest), digest, secret)

    @classmethod
    def of_master(cls, master: bytes, randoms: bytes, digest: str, key_bytes: int) -> "WriteKeys":
        """Return the client's keys that TLS 1.2 derives from a master secret (RFC 5246 §6.3).
        `randoms` are the random values of server and client."""
        block = prf(master, b"key expansion" + randoms, 2 * key_bytes + 8, digest)
        salt = block[2 * key_bytes : 2 * key_bytes + 4]
        return cls("TLSv1.2", block[:key_bytes], salt, digest, master)

    def encrypt(self, content_type: int, data: bytes) -> bytes:
        """Return the next TLS record with the given content, encrypted."""
        sequence = _SEQUENCE.pack(self._count)
        self._count += 1
        if not self.is_newest:
            header = sequence + _RECORD_HEADER.pack(content_type, TLS_1_2, len(data))
            sealed = self._cipher.encrypt(self._iv + sequence, data, header)
            return record(content_type, sequence + sealed)
        nonce = bytes(a ^ b for a, b in zip(self._iv, bytes(4) + sequence, strict=True))
        header = _RECORD_HEADER.pack(DATA, TLS_1_2, len(data) + 17)
        return header + self._cipher.encrypt(nonce, data + bytes((content_type,)), header)

    def change(self) -> None:
        """Switch to the keys that the sender of a TLS KeyUpdate uses from then on."""
        secret = expand_label(self._secret, "traffic upd", len(self._secret), self._digest)
        key_bytes = 32 if self._digest == "sha384" else 16
        self.__dict__.update(WriteKeys.of_secret(secret, self._digest, key_bytes).__dict__)


class RecordClient:
    """TLS client over memory buffers that performs a handshake, and then creates TLS records of any
    kind."""

    def __init__(self, context: ssl.SSLContext, host: str, folder: Path) -> None:
        """Prepare the TLS handshake. No other client may use `context`, because a key log in
        `folder` is added to it."""
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            self._key_log = Path(file.name)
        context.keylog_filename = str(self._key_log)
        context.set_ciphers(CIPHERS)
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._received, self._sent, server_hostname=host)
        self._first_received = b""
        self.keys: WriteKeys

    def shake_hands(self, exchange: Callable[[bytes], bytes]) -> None:
        """Perform the TLS handshake. `exchange` sends bytes and returns the next bytes that are
        received."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                data = exchange(self._sent.read())
                if not data:
                    raise ConnectionResetError("gone within the handshake") from None
                self._first_received = self._first_received or data
                self._received.write(data)
            else:
                break
        self.keys = self._write_keys()

    def last_handshake_bytes(self) -> bytes:
        """Return the last bytes of the TLS handshake, which the caller must still send."""
        return self._sent.read()

    def receive(self, data: bytes) -> None:
        """Process bytes that the server has sent over TLS."""
        self._received.write(data)

    def read(self, size: int) -> bytes:
        """Return decrypted bytes that the server has sent, or b"" if none have arrived."""
        try:
            return self.tls.read(size)
        except ssl.SSLWantReadError:
            return b""

    def _write_keys(self) -> WriteKeys:
        lines = [line.split() for line in self._key_log.read_text().splitlines()]
        secrets = {
            line[0]: (bytes.fromhex(line[1]), bytes.fromhex(line[2]))
            for line in lines
            if len(line) == 3
        }
        cipher = self.tls.cipher()
        assert cipher is not None
        key_bytes = 32 if "256" in cipher[0] else 16
        digest = "sha384" if "384" in cipher[0] else "sha256"
        if self.tls.version() == "TLSv1.3":
            return WriteKeys.of_secret(secrets["CLIENT_TRAFFIC_SECRET_0"][1], digest, key_bytes)
        client_random, master = secrets["CLIENT_RANDOM"]
        # The bytes before it are the record header, the header of the handshake message, and a
        # version.
        server_random = self._first_received[11:43]
        return WriteKeys.of_master(master, server_random + client_random, digest, key_bytes)


def expand_label(secret: bytes, label: str, size: int, digest: str) -> bytes:
    """Return HKDF-Expand-Label (RFC 8446 §7.1) with an empty context."""
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", size, len(name)) + name + b"\0"
    out, last, number = b"", b"", 1
    while len(out) < size:
        last = hmac.digest(secret, last + info + bytes((number,)), digest)
        out += last
        number += 1
    return out[:size]


def prf(secret: bytes, seed: bytes, size: int, digest: str) -> bytes:
    """Return the output of the pseudorandom function of TLS 1.2 (RFC 5246 §5)."""
    out, chained = b"", seed
    while len(out) < size:
        chained = hmac.digest(secret, chained, digest)
        out += hmac.digest(secret, chained + seed, digest)
    return out[:size]


@dataclass(frozen=True, slots=True)
class RecordFlood:
    """An endless sequence of TLS records that a client sends after its handshake."""

    name: str
    make: Callable[[WriteKeys, bytes, int], Iterator[bytes]]
    """Function that yields the TLS records of the flood. Its arguments are keys, a request, and a
    number of records."""
    is_ended: bool
    """True if the server must close the flooded connection. Otherwise the server must answer all
    requests in the flood."""
    versions: tuple[ssl.TLSVersion, ...] = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def new_keys(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS KeyUpdate messages. Each is encrypted with the keys that the previous message has
    introduced."""
    for _number in range(count):
        yield keys.encrypt(HANDSHAKE, KEEP_YOUR_KEYS)
        keys.change()


def empty_records(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield encrypted TLS records without data."""
    for _number in range(count):
        yield keys.encrypt(DATA, b"")


def tiny_records(keys: WriteKeys, request: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS records with one byte of a request each."""
    for number in range(count):
        at = number % len(request)
        yield keys.encrypt(DATA, request[at : at + 1])


def tiny_and_empty(keys: WriteKeys, request: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS records with one byte of a request each, alternating with empty records."""
    for tiny in tiny_records(keys, request, count // 2):
        yield tiny
        yield keys.encrypt(DATA, b"")


def alerts(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield encrypted TLS alerts of level warning."""
    for _number in range(count):
        yield keys.encrypt(ALERT, USER_CANCELED)


def renegotiations(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS records that request a renegotiation on the same connection."""
    for _number in range(count):
        yield keys.encrypt(HANDSHAKE, CLIENT_HELLO)


def split_messages(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield a long TLS handshake message, one byte in each record."""
    announced = bytes((24, 0, 0xFF, 0xFF)) if keys.is_newest else bytes((1, 0, 0xFF, 0xFF))
    for number in range(count):
        yield keys.encrypt(HANDSHAKE, announced[number : number + 1] or b"\0")


def coalesced_messages(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS records that each contain many handshake messages."""
    message = KEEP_YOUR_KEYS if keys.is_newest else bytes(4)
    for _number in range(count):
        yield keys.encrypt(HANDSHAKE, message * 3_000)


def plain_records(keys: WriteKeys, _: bytes, count: int) -> Iterator[bytes]:
    """Yield unencrypted TLS records of type change_cipher_spec, which TLS 1.3 allows for
    middleboxes."""
    for _number in range(count):
        yield record(CHANGE_CIPHER_SPEC, b"\1")


NEWEST = (ssl.TLSVersion.TLSv1_3,)
OLDER = (ssl.TLSVersion.TLSv1_2,)

FLOODS: tuple[RecordFlood, ...] = (
    RecordFlood("new keys", new_keys, is_ended=True, versions=NEWEST),
    RecordFlood("empty records", empty_records, is_ended=True),
    RecordFlood("tiny records", tiny_records, is_ended=False),
    RecordFlood("tiny and empty records", tiny_and_empty, is_ended=False),
    RecordFlood("alerts", alerts, is_ended=True),
    RecordFlood("renegotiations", renegotiations, is_ended=True, versions=OLDER),
    RecordFlood("split messages", split_messages, is_ended=True),
    RecordFlood("coalesced messages", coalesced_messages, is_ended=True),
    RecordFlood("plain records", plain_records, is_ended=True),
)
"""Floods that a client sends after its handshake. Their TLS records contain little or no data."""


def split_hello(hello: bytes, count: int) -> Iterator[bytes]:
    """Yield the parts of an endless first TLS handshake message, with one byte in each record."""
    message = hello[_RECORD_HEADER.size :]
    # The announced length is greater than the data, so OpenSSL waits for the rest.
    announced = message[:1] + b"\0\x40\0" + message[4:]
    for number in range(count):
        yield record(HANDSHAKE, announced[number : number + 1] or b"\0", TLS_1_0)


def plain_alerts(_: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS alerts of level warning before a handshake."""
    for _number in range(count):
        yield record(ALERT, USER_CANCELED, TLS_1_0)


def empty_handshakes(_: bytes, count: int) -> Iterator[bytes]:
    """Yield TLS handshake records without data."""
    for _number in range(count):
        yield record(HANDSHAKE, b"", TLS_1_0)


def hello_and_plain_records(hello: bytes, count: int) -> Iterator[bytes]:
    """Yield a complete TLS ClientHello, followed by change_cipher_spec records."""
    yield hello
    for _number in range(count):
        yield record(CHANGE_CIPHER_SPEC, b"\1")


HANDSHAKE_FLOODS: dict[str, Callable[[bytes, int], Iterator[bytes]]] = {
    "a split hello": split_hello,
    "alerts before a handshake": plain_alerts,
    "empty handshake records": empty_handshakes,
    "a hello and plain records": hello_and_plain_records,
}
"""Floods that a client sends instead of a TLS handshake. The server must close the connection of
each."""
