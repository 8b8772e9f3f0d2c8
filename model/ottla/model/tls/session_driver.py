"""The server's end of one TLS connection over memory: ciphertext in and out, plaintext out and in.

OpenSSL reads from a buffer in memory and never from a socket.  One `SSL_read` consumes records
without application data until its source is empty: a client that sends KeyUpdate (27 bytes, 22 µs)
faster than OpenSSL consumes it would keep the event loop for as long as it likes.  The session
therefore reads the header of each record (5 bytes, RFC 8446 §5.1), gives OpenSSL a few records at
a time, and counts the records that yielded no data.

Invariants:

* RecordsWithoutDataAreBounded: a client may send at most `RECORDS_WITHOUT_DATA_MAX` of them beyond
  the number of its records with data, and at most `HANDSHAKE_RECORDS_MAX` in a handshake.
* DecryptingIsBounded: one call handles at most `RECORDS_PER_CALL_MAX` records, and starts nothing
  after `DECRYPT_NS_MAX`.  The ciphertext that is left is kept for the next call.
"""

import ssl
from collections.abc import Callable
from contextlib import suppress
from struct import Struct

from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB

RECORD_BYTES = 16 * KIB
"""Plaintext of one TLS record at most."""

RECORDS_WITHOUT_DATA_MAX = 32
"""Records without data that a client may send beyond those with data.  OpenSSL has the same limit
for empty records, BoringSSL for KeyUpdate.  Lower cuts off clients that change keys often."""

HANDSHAKE_RECORDS_MAX = 256
"""Records of a client in one handshake.  A chain of certificates of 100 KiB, the most that OpenSSL
reads, has 200 records of 512 bytes."""

RECORDS_PER_CALL_MAX = 512
"""Records that one call decrypts.  Lower costs turns of the loop where clients send small ones."""

DECRYPT_NS_MAX = 500_000
"""Time after which a call gives OpenSSL no further records.  64 KiB in full records take 0.1 ms."""

RECORDS_PER_PIECE = 16
"""Records given to OpenSSL at once: the most that one `SSL_read` can consume (0.4 ms)."""

PIECE_BYTES = 16 * KIB
"""Bytes given to OpenSSL at once, up to the end of a record.  The buffer in memory keeps the
capacity of its largest piece for as long as the connection lives."""

HEADER_BYTES = 5
CIPHERTEXT_BYTES_MAX = RECORD_BYTES + 2 * KIB
"""Ciphertext of one record at most (TLS 1.2; 1.3 has 256 bytes of overhead)."""

FIRST_TYPE, LAST_TYPE = 20, 24
"""Content types: change_cipher_spec, alert, handshake, application_data, heartbeat."""

ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""Errors of OpenSSL that mean: the client has gone."""

NOTHING = memoryview(b"")

read_header = Struct(">BHH").unpack_from


class TlsFloodError(ProtocolError):
    """More records without application data than a client may send."""


class TlsSession:
    """One TLS connection of a server, without its socket."""

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
        """`now_ns` is the stopwatch of `DECRYPT_NS_MAX`."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._now_ns = now_ns
        self.has_ended = False
        """True if the client has said goodbye (close_notify)."""
        # Ciphertext that OpenSSL does not have yet, from an offset.
        self._held = NOTHING
        self._held_at = 0
        # The first bytes of a record's header, and what is missing of a record; OpenSSL has the
        # bytes before.
        self._split_header = b""
        self._bytes_missing = 0
        # Whole records that OpenSSL has, and has not yielded the data of.
        self._record_count = 0
        self._excess_count = 0
        self._shaken_count = 0

    # What is held.

    @property
    def has_unread(self) -> bool:
        """True if there is something to decrypt without further ciphertext."""
        return self._record_count > 0 or self.holds_ciphertext

    @property
    def holds_ciphertext(self) -> bool:
        """True if a bound has left ciphertext behind, which comes before any other."""
        return self._held_at < len(self._held)

    @property
    def has_output(self) -> bool:
        """True if there are records to be sent."""
        return self._outgoing.pending > 0

    def take_output(self) -> bytes:
        """Return and drop the records to be sent."""
        return self._outgoing.read()

    def certificate(self) -> bytes | None:
        """Return the client's certificate (DER), or None if it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    # The handshake.

    def shake_hands(self, ciphertext: memoryview = NOTHING) -> bool:
        """Continue the handshake with new ciphertext; return whether it has ended.

        Ciphertext after the handshake is kept.  Raises ssl.SSLError when the handshake fails, and
        TlsFloodError.  Either way there may be output.
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

    # Plaintext.

    def decrypt(self, room: memoryview, ciphertext: memoryview = NOTHING) -> int:
        """Decrypt into room, within the bounds of a call; return how many bytes.

        New ciphertext may be given if none is held.  Raises TlsFloodError, and ssl.SSLError if a
        record is forged or malformed.
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
        """Return the records of some plaintext, at most `RECORD_BYTES`, after earlier output.

        Raises ssl.SSLError if the connection cannot be written to.
        """
        self._tls.write(data)
        return self._outgoing.read()

    def say_goodbye(self) -> bytes:
        """Return earlier output and a close_notify."""
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        return self._outgoing.read()

    # Records.

    def _unread(self, ciphertext: memoryview) -> tuple[memoryview, int]:
        if not self.holds_ciphertext:
            return ciphertext, 0
        assert not ciphertext, "ciphertext is taken before what is held has been decrypted"
        return self._held, self._held_at

    def _hold(self, data: memoryview, at: int) -> None:
        """Keep the ciphertext from an offset."""
        if at == len(data):
            self._held, self._held_at = NOTHING, 0
        elif data is self._held:
            self._held_at = at
        else:
            self._held, self._held_at = memoryview(bytes(data[at:])), 0

    def _feed(self, data: memoryview, at: int, count_max: int) -> int:
        """Give OpenSSL up to some whole records, and the start of one that has not arrived whole.

        Returns the offset of what was not given.
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
        """Return the size of the record at an offset, as far as it has not been given.

        A header that is split over two arrivals counts as a piece of its own.
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
            # OpenSSL finds the right words for what is not TLS, and needs nothing else for that.
            return len(data) - at
        return HEADER_BYTES - len(split) + length

    def _read(self, room: memoryview) -> int:
        """Read the data of the records that OpenSSL has; return how much fitted into room."""
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
        """Note that the client sends nothing further, whatever still follows."""
        self.has_ended = True
        self._record_count = 0
