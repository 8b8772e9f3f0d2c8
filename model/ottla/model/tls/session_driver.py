"""The server's end of one TLS connection in memory: decrypts the ciphertext that arrives, and
encrypts the plaintext to send.

OpenSSL reads from a buffer in memory and never from a socket. One call of `SSL_read` consumes
records without application data until its buffer is empty. A client that sends KeyUpdate records
(27 bytes, 22 µs each) faster than OpenSSL consumes them could therefore block the event loop for
any length of time. To prevent this, the session reads the header of each record (5 bytes, RFC 8446
§5.1), passes a few records at a time to OpenSSL, and counts the records that yielded no data.

Invariants:
* RecordsWithoutDataAreBounded: the number of a client's records without data exceeds the number of
    its records with data by at most `RECORDS_WITHOUT_DATA_MAX`. In a handshake, a client may send
    at most `HANDSHAKE_RECORDS_MAX` records.
* DecryptingIsBounded: one call processes at most `RECORDS_PER_CALL_MAX` records, and starts no
    further record after `DECRYPT_NS_MAX`. The remaining ciphertext is kept for the next call.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from struct import Struct

from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB

RECORD_BYTES = 16 * KIB
"""Maximum size of the plaintext of one TLS record, in bytes."""

RECORDS_WITHOUT_DATA_MAX = 32
"""Maximum number by which a client's records without data may exceed its records with data.

OpenSSL has the same limit for empty records, and BoringSSL for KeyUpdate. With a smaller number,
clients that change keys often would lose their connections.
"""

HANDSHAKE_RECORDS_MAX = 256
"""Maximum number of records that a client may send in one handshake. A certificate chain of 100
KiB, the largest that OpenSSL accepts, fits into 200 records of 512 bytes."""

RECORDS_PER_CALL_MAX = 512
"""Maximum number of records that one call decrypts. With a smaller number, clients that send small
records need more event-loop iterations."""

DECRYPT_NS_MAX = 500_000
"""Time in ns after which a call passes no further records to OpenSSL. For comparison, decrypting 64
KiB in records of full size takes 0.1 ms."""

RECORDS_PER_PIECE = 16
"""Number of TLS records that are passed to OpenSSL at once. One call of `SSL_read` may decrypt all
of them, which takes at most 0.4 ms."""

PIECE_BYTES = 16 * KIB
"""Number of bytes after which no further record is passed to OpenSSL in the same step. OpenSSL's
memory buffer keeps the capacity of its largest content for as long as the connection exists."""

HEADER_BYTES = 5
CIPHERTEXT_BYTES_MAX = RECORD_BYTES + 2 * KIB
"""Maximum size of the ciphertext of one record, in bytes (TLS 1.2; in TLS 1.3 the overhead is 256
bytes)."""

FIRST_TYPE, LAST_TYPE = 20, 24
"""Lowest and highest content type of a TLS record. The types are change_cipher_spec, alert,
handshake, application_data and heartbeat."""

ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Python's ssl exceptions that mean that the client has closed the connection."""

NOTHING = memoryview(b"")

read_header = Struct(">BHH").unpack_from


class TlsFloodError(ProtocolError):
    """The client sent more records without application data than allowed."""


class TlsSession:
    """The server's end of one TLS connection, without its socket."""

    __slots__ = (
        "_bytes_missing",
        "_excess_count",
        "_held",
        "_held_at",
        "_incoming",
        "_now_ns",
        "_outgoing",
        "_record_count",
        "_shaken_count",
        "_split_header",
        "_tls",
        "has_ended",
    )

    def __init__(self, context: ssl.SSLContext, now_ns: Callable[[], int]) -> None:
        """Create a session with the SSL context of a server. `now_ns` is the clock that measures
        `DECRYPT_NS_MAX`."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._now_ns = now_ns
        self.has_ended = False
        """True if the client has sent close_notify."""
        # Ciphertext that was not passed to OpenSSL yet, and the offset at which it starts.
        self._held = NOTHING
        self._held_at = 0
        # The first bytes of a record's header, and the number of missing bytes of a record. The
        # bytes before were passed to OpenSSL.
        self._split_header = b""
        self._bytes_missing = 0
        # Number of complete records passed to OpenSSL whose data was not returned yet.
        self._record_count = 0
        self._excess_count = 0
        self._shaken_count = 0

    # ---- state

    @property
    def has_unread(self) -> bool:
        """True if `decrypt` may return data without further ciphertext."""
        return self._record_count > 0 or self.holds_ciphertext

    @property
    def holds_ciphertext(self) -> bool:
        """True if ciphertext is left because a call reached its limit. It must be decrypted before
        new ciphertext is passed."""
        return self._held_at < len(self._held)

    @property
    def has_output(self) -> bool:
        """True if there are TLS records to send to the client."""
        return self._outgoing.pending > 0

    def take_output(self) -> bytes:
        """Return the TLS records to send to the client, and remove them from the session."""
        return self._outgoing.read()

    def certificate(self) -> bytes | None:
        """Return the client's certificate in DER, or None if the client presented none."""
        return self._tls.getpeercert(binary_form=True)

    # ---- handshake

    def shake_hands(self, ciphertext: memoryview = NOTHING) -> bool:
        """Continue the handshake with new ciphertext. Returns True once the handshake is complete.

        Ciphertext that follows the handshake is kept for `decrypt`. Raises ssl.SSLError if the
        handshake fails, and TlsFloodError if the client sends too many records. After either error
        there may be output to send.
        """
        data, at = self._unread(ciphertext)
        while at < len(data):
            at = self._feed(data, at, 1)
            self._shaken_count += self._record_count
            self._record_count = 0
            if self._shaken_count > HANDSHAKE_RECORDS_MAX:
                raise TlsFloodError(f"more than {HANDSHAKE_RECORDS_MAX} records in a handshake")
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            self._hold(data, at)
            return True
        self._hold(data, at)
        return False

    # ---- plaintext

    def decrypt(self, room: memoryview, ciphertext: memoryview = NOTHING) -> int:
        """Decrypt ciphertext into the buffer `room`, within the limits of one call. Returns the
        number of bytes of plaintext.

        New ciphertext may be passed only if the previous call has left none. Raises TlsFloodError
        if the client sends too many records without data, and ssl.SSLError if a record is forged or
        malformed.
        """
        data, at = self._unread(ciphertext)
        size = count = 0
        ends_ns = self._now_ns() + DECRYPT_NS_MAX
        while True:
            if self._record_count:
                count += self._record_count
                size += self._read(room[size:])
            if at == len(data) or self.has_ended or self._record_count:
                break
            if count and (count >= RECORDS_PER_CALL_MAX or self._now_ns() >= ends_ns):
                break
            at = self._feed(data, at, RECORDS_PER_PIECE)
        self._hold(data, len(data) if self.has_ended else at)
        return size

    def encrypt(self, data: memoryview) -> bytes:
        """Encrypt at most `RECORD_BYTES` of plaintext. Returns the pending output followed by the
        new records.

        Raises ssl.SSLError if the connection is closed for writing.
        """
        self._tls.write(data)
        return self._outgoing.read()

    def take_close_notify(self) -> bytes:
        """Close the TLS session. Returns the pending output followed by the close_notify alert."""
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        return self._outgoing.read()

    # ---- records

    def _unread(self, ciphertext: memoryview) -> tuple[memoryview, int]:
        if not self.holds_ciphertext:
            return ciphertext, 0
        assert not ciphertext, "ciphertext is taken before what is held has been decrypted"
        return self._held, self._held_at

    def _hold(self, data: memoryview, at: int) -> None:
        """Keep the ciphertext from offset `at` on for a later call."""
        if at == len(data):
            self._held, self._held_at = NOTHING, 0
        elif data is self._held:
            self._held_at = at
        else:
            self._held, self._held_at = memoryview(bytes(data[at:])), 0

    def _feed(self, data: memoryview, at: int, count_max: int) -> int:
        """Pass at most `count_max` complete records to OpenSSL, and the start of an incomplete one.

        Returns the offset of the first byte that was not passed.
        """
        start, end, count = at, len(data), 0
        full_at = min(at + PIECE_BYTES, end)
        while at < end:
            missing = self._bytes_missing or self._next_record_bytes(data, at)
            if end - at < missing:
                self._bytes_missing = missing - (end - at)
                at = end
                break
            at += missing
            self._bytes_missing = 0
            if self._split_header:
                continue
            count += 1
            if count == count_max or at >= full_at:
                break
        self._incoming.write(data[start:at])
        self._record_count += count
        return at

    def _next_record_bytes(self, data: memoryview, at: int) -> int:
        """Return the number of bytes, of the record at an offset, that OpenSSL has not received
        yet.

        If its header has arrived only in part, returns the number of bytes that have arrived.
        """
        split = self._split_header
        header = split + bytes(data[at : at + HEADER_BYTES - len(split)])
        if len(header) < HEADER_BYTES:
            self._split_header = header
            return len(data) - at
        self._split_header = b""
        content_type: int
        length: int
        content_type, _, length = read_header(header)
        if not FIRST_TYPE <= content_type <= LAST_TYPE or length > CIPHERTEXT_BYTES_MAX:
            # Bytes that are not TLS: OpenSSL raises the right error for them.
            return len(data) - at
        return HEADER_BYTES - len(split) + length

    def _read(self, room: memoryview) -> int:
        """Read the decrypted data of the records in OpenSSL's buffer into `room`. Returns the
        number of bytes."""
        tls = self._tls
        size = 0
        try:
            while self._record_count and size < len(room):
                read = tls.read(len(room) - size, room[size:])
                assert isinstance(read, int)
                if not read:
                    self._end()
                    break
                size += read
                if size == len(room) and tls.pending():
                    break
                self._record_count -= 1
                if self._excess_count:
                    self._excess_count -= 1
        except ssl.SSLWantReadError:
            self._excess_count += self._record_count
            self._record_count = 0
            if self._excess_count > RECORDS_WITHOUT_DATA_MAX:
                raise TlsFloodError(
                    f"TLS: more than {RECORDS_WITHOUT_DATA_MAX} records without data"
                ) from None
        except ENDED:
            self._end()
        return size

    def _end(self) -> None:
        """Ignore everything that the client sends after this call."""
        self.has_ended = True
        self._record_count = 0
