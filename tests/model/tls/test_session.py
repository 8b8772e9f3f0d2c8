"""The TLS session over memory: the data it yields, and its bounds on records."""

import ssl
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.bench.floods.tls_records import (
    DATA,
    FLOODS,
    HANDSHAKE,
    KEEP_YOUR_KEYS,
    RecordClient,
    RecordFlood,
)
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.tls.context_driver import client_context, server_context
from ottla.model.tls.session_driver import (
    RECORDS_PER_CALL_MAX,
    RECORDS_PER_PIECE,
    RECORDS_WITHOUT_DATA_MAX,
    TlsFloodError,
    TlsSession,
)

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
ROOM_BYTES = 64 << 10


class Pair:
    """A session, and a client that makes records."""

    def __init__(
        self, authority: "CertificateAuthority", folder: Path, version: ssl.TLSVersion
    ) -> None:
        server = server_context(TlsConfig(certificate_location=str(authority.issue("server"))))
        context = client_context(TlsConfig(trust_location=str(authority.file)))
        context.minimum_version = context.maximum_version = version
        self.session = TlsSession(server, lambda: 0)
        self.client = RecordClient(context, "server", folder)
        self.client.shake_hands(self._exchange)
        assert self.session.shake_hands(
            memoryview(self.client.last_handshake_bytes())
        ) or not _is_newest(version)
        self.session.take_output()
        self.keys = self.client.keys

    def _exchange(self, data: bytes) -> bytes:
        self.session.shake_hands(memoryview(data))
        return self.session.take_output()

    def decrypt(self, ciphertext: bytes, room_bytes: int = ROOM_BYTES) -> bytes:
        """Give the session ciphertext at once; return all data that it yields."""
        room = memoryview(bytearray(room_bytes))
        data = bytearray(room[: self.session.decrypt(room, memoryview(ciphertext))])
        while self.session.has_unread:
            data += room[: self.session.decrypt(room)]
        return bytes(data)


def _is_newest(version: ssl.TLSVersion) -> bool:
    return version is ssl.TLSVersion.TLSv1_3


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def pair(
    request: pytest.FixtureRequest, authority: "CertificateAuthority", tmp_path: Path
) -> Iterator[Pair]:
    yield Pair(authority, tmp_path, request.param)


@pytest.fixture(scope="module")
def newest(
    authority: "CertificateAuthority", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    yield Pair(authority, tmp_path_factory.mktemp("keys"), ssl.TLSVersion.TLSv1_3)


def test_records_may_come_in_pieces_of_any_size(pair: Pair) -> None:
    said = [b"a" * size for size in (1, 100, 16_384, 5, 16_384, 3)]
    data = b"".join(pair.keys.encrypt(DATA, one) for one in said)
    heard = b""
    for at in range(0, len(data), 7):
        heard += pair.decrypt(data[at : at + 7])
    assert heard == b"".join(said)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 17, 1_000, 16_384]), max_size=30),
    pieces=st.lists(st.sampled_from([1, 4, 5, 6, 300, 20_000, 65_536]), min_size=1, max_size=9),
    rooms=st.lists(st.sampled_from([1, 100, 16_384, 262_144]), min_size=1, max_size=9),
)
def test_whatever_the_pieces_and_the_room_all_data_comes_in_order(
    newest: Pair, sizes: list[int], pieces: list[int], rooms: list[int]
) -> None:
    said = [bytes([number]) * size for number, size in enumerate(sizes)]
    sent = b"".join(newest.keys.encrypt(DATA, one) for one in said)
    heard, at = b"", 0
    for piece_bytes, room_bytes in zip(cycle(pieces), cycle(rooms), strict=False):
        if at >= len(sent):
            break
        heard += newest.decrypt(sent[at : at + piece_bytes], room_bytes)
        at += piece_bytes
    assert heard == b"".join(said)
    assert not newest.session.has_unread


def test_one_call_decrypts_a_bounded_number_of_records(pair: Pair) -> None:
    count = 2 * RECORDS_PER_CALL_MAX
    data = b"".join(pair.keys.encrypt(DATA, b"x") for _ in range(count))
    room = memoryview(bytearray(ROOM_BYTES))
    size = pair.session.decrypt(room, memoryview(data))
    assert RECORDS_PER_CALL_MAX <= size < RECORDS_PER_CALL_MAX + RECORDS_PER_PIECE
    assert pair.session.holds_ciphertext
    while pair.session.has_unread:
        size += pair.session.decrypt(room)
    assert size == count


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.name)
def test_a_flood_of_records_ends_with_an_error_if_it_has_no_data(
    flood: RecordFlood, authority: "CertificateAuthority", tmp_path: Path
) -> None:
    for version in flood.versions:
        pair = Pair(authority, tmp_path, version)
        data = b"".join(flood.make(pair.keys, b"request", 2_000))
        if flood.is_ended:
            with pytest.raises((TlsFloodError, ssl.SSLError)):
                pair.decrypt(data)
        else:
            assert pair.decrypt(data)


def test_new_keys_may_come_with_data_at_any_time_but_not_without_end(newest: Pair) -> None:
    for _ in range(10 * RECORDS_WITHOUT_DATA_MAX):
        record = newest.keys.encrypt(HANDSHAKE, KEEP_YOUR_KEYS)
        newest.keys.change()
        assert newest.decrypt(record + newest.keys.encrypt(DATA, b"x")) == b"x"
    # The last one of before counts.
    for _ in range(RECORDS_WITHOUT_DATA_MAX - 1):
        record = newest.keys.encrypt(HANDSHAKE, KEEP_YOUR_KEYS)
        newest.keys.change()
        assert not newest.decrypt(record)
    with pytest.raises(TlsFloodError):
        newest.decrypt(newest.keys.encrypt(HANDSHAKE, KEEP_YOUR_KEYS))
