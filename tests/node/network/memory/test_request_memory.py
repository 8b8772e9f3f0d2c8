"""Shares of the request memory and their duration, for peers of all kinds in virtual time."""

import struct
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.limits import (
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_GRACE_MS,
    KIB,
    MEMORY_CHECK_MS,
    MEMORY_PROGRESS_BYTES_MIN,
    MIB,
)
from ottla.node.network.connection import Connection, Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.guard import GuardResponse
from ottla.node.network.memory.buffers import HELD_BYTES_MIN
from ottla.node.network.memory.request_memory import (
    SHARES_OF_POOL,
    SMALL_PARTS_OF_POOL,
    SWEEP_MS,
    TRIM_BYTES,
    TRIM_INTERVAL_MS,
    UNAUTHENTICATED_CHUNK_BYTES,
    UNAUTHENTICATED_PARTS_OF_POOL,
    RequestMemory,
    frame_timeout_ms,
)
from ottla.node.network.response_queue import ResponseSlot
from ottla.wire.apis import FETCH, PRODUCE
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

STEP_MS = 100
LARGEST = 100 * MIB - KIB
SHARED_BUFFER_BYTES = 256 * KIB
FAST = 200 * MIB
"""Bytes a second of a peer on the same machine."""


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@cache
def produce(size: int) -> memoryview:
    data = PartitionProduceData(index=0, records=bytes(size))
    topic = TopicProduceData(name="t", partition_data=[data])
    body = encode(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 7)
    return memoryview(framed(encode_request_header(PRODUCE, 7, 1, "t") + body))


LONG_POLL = framed(encode_request_header(FETCH, 11, 1, "t") + encode(FetchRequest(), 11))


class Client:
    """A peer with its unsent bytes and its speed; host of its connection."""

    def __init__(
        self, house: "House", data: bytes | memoryview, bytes_per_second: int, listener: str
    ) -> None:
        peer = Peer(
            connection_id=len(house.clients),
            listener_name=listener,
            peer_host="127.0.0.1",
            peer_port=40_000,
            local_host="127.0.0.1",
            local_port=9092,
        )
        self.connection = Connection(
            peer,
            house.dispatcher,
            self,
            memory=house.memory,
            limits=ConnectionLimits(),
            now_ms=house.now_ms,
        )
        self.house = house
        self.data = memoryview(data)
        self.bytes_per_second = bytes_per_second
        self.closed_at_ms: int | None = None
        self.reason = ""
        self.answer_bytes = 0
        self.answered_at_ms: int | None = None
        self._credit = 0
        house.clients.append(self)

    def step(self) -> None:
        """Send the bytes of one step, as the kernel and the channel would pass them on."""
        connection = self.connection
        if connection.is_closed:
            return
        connection.resume(self.house.now_ms)
        self._credit = min(self._credit + self.bytes_per_second * STEP_MS // 1_000, len(self.data))
        while self._credit and connection.wants_bytes and not connection.is_closed:
            window = connection.window()
            memory = connection.memory
            read_bytes = memory.chunk_bytes if memory.reads_chunks else SHARED_BUFFER_BYTES
            bound = len(window) if window is not None else read_bytes
            size = min(self._credit, bound)
            assert size, "a socket that is to be read needs room"
            if window is None:
                connection.on_bytes(memoryview(bytearray(self.data[:size])), self.house.now_ms)
            else:
                window[:size] = self.data[:size]
                connection.on_window_filled(size, self.house.now_ms)
            self.data = self.data[size:]
            self._credit -= size
        if connection.output.byte_count:
            self.answered_at_ms = self.house.now_ms
            self.answer_bytes += connection.output.byte_count
            connection.on_sent(connection.output.byte_count, self.house.now_ms)

    # The connection's host.

    def on_work(self, connection: Connection) -> None:
        """Every step resumes anyway."""

    def run(self, connection: Connection, slot: ResponseSlot, pending: Pending) -> None:
        raise AssertionError("no handler here awaits")

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        raise fault

    def give_up(self, connection: Connection, reason: str) -> None:
        self.closed_at_ms, self.reason = self.house.now_ms, reason
        connection.close()

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        raise AssertionError("no connection is throttled here")


class FirstFrame:
    """A guard to which any whole frame is a login."""

    frame_bytes_max = 512 * KIB
    frame_bytes_min = None

    def __init__(self, peer: Peer) -> None:
        self.is_done = self.has_logged_in = False

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardResponse | None:
        self.is_done = self.has_logged_in = True
        return None


class House:
    """A pool, its clients and time."""

    def __init__(self, pool_bytes: int | None = 256 * MIB) -> None:
        self.memory = RequestMemory(pool_bytes)
        self.dispatcher = Dispatcher({PRODUCE: self.on_produce, FETCH: self.on_fetch})
        self.dispatcher.guards = {"SASL": FirstFrame}
        self.clients: list[Client] = []
        self.now_ms = 0
        self.most_bytes = 0

    def on_produce(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse:
        return ProduceResponse()

    def on_fetch(self, context: RequestContext, request: FetchRequest) -> None:
        """Wait forever."""

    @property
    def unauthenticated(self) -> RequestMemory:
        assert self.memory.unauthenticated is not None
        return self.memory.unauthenticated

    def client(self, data: bytes | memoryview, bytes_per_second: int = FAST) -> Client:
        return Client(self, data, bytes_per_second, "PLAINTEXT")

    def unauthenticated_client(
        self, data: bytes | memoryview, bytes_per_second: int = FAST
    ) -> Client:
        """A client of a listener that asks for a login: its first request is one."""
        return Client(self, data, bytes_per_second, "SASL")

    def pass_time(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.now_ms += STEP_MS
            for client in self.clients:
                client.step()
            if not self.now_ms % SWEEP_MS:
                self.memory.sweep(self.now_ms)
            self.most_bytes = max(self.most_bytes, self.memory.reserved_bytes)
            allocated = sum(client.connection._held.capacity_bytes for client in self.clients)
            held = self.memory.reserved_bytes + self.unauthenticated.reserved_bytes
            assert held == allocated, "ChargedAsAllocated"


def test_large_announced_requests_that_stay_unsent_leave_the_pool_to_others() -> None:
    house = House()
    liars = [house.client(produce(LARGEST)[:1_000]) for _ in range(300)]
    house.pass_time(STEP_MS)
    assert house.memory.reserved_bytes <= len(liars) * HELD_BYTES_MIN
    honest = [house.client(produce(size * MIB)) for size in (1, 8, 40)]
    house.pass_time(1_000)
    assert all(client.answered_at_ms for client in honest)


def test_large_half_sent_requests_leave_room_for_small_requests() -> None:
    house = House(64 * MIB)
    for _ in range(8):
        house.client(produce(20 * MIB)[: 19 * MIB])
    house.pass_time(2_000)
    assert house.memory.reserved_bytes > 64 * MIB
    honest = [house.client(produce(1_000 * KIB)) for _ in range(40)]
    house.pass_time(2_000)
    assert all(client.answered_at_ms for client in honest)


def test_who_brings_much_and_stops_is_closed_when_others_wait() -> None:
    house = House(64 * MIB)
    for _ in range(8):
        house.client(produce(20 * MIB)[: 19 * MIB])
    house.pass_time(2_000)
    honest = [house.client(produce(6 * MIB)) for _ in range(5)]
    house.pass_time(40_000)
    assert all(client.answered_at_ms for client in honest), [c.reason for c in honest]


def test_requests_parked_behind_a_long_poll_are_closed_when_others_wait() -> None:
    house = House(64 * MIB)
    for _ in range(8):
        house.client(LONG_POLL + bytes(produce(15 * MIB)))
    house.pass_time(2_000)
    honest = house.client(produce(6 * MIB))
    house.pass_time(8 * MEMORY_CHECK_MS)
    assert honest.answered_at_ms


def test_requests_that_together_exceed_the_pool_take_turns_and_all_are_served() -> None:
    pool_bytes, size = 8 * MIB, 5 * MIB
    house = House(pool_bytes)
    honest = [house.client(produce(size), MIB) for _ in range(10)]
    house.pass_time(120_000)
    assert all(client.answered_at_ms for client in honest), [c.reason for c in honest]
    assert house.memory.given_up_count == 0
    assert house.memory.reserved_bytes == 0
    # The last grant, and one connection at a time, may go past the limit.
    assert house.most_bytes <= pool_bytes + pool_bytes // SHARES_OF_POOL + 2 * size


def test_a_request_larger_than_the_pool_is_served() -> None:
    house = House(MIB)
    honest = house.client(produce(10 * MIB))
    house.pass_time(1_000)
    assert honest.answered_at_ms


def test_a_slow_producer_of_the_largest_request_lives() -> None:
    house = House()
    honest = house.client(produce(LARGEST), FRAME_BYTES_PER_SECOND_MIN)
    house.pass_time(frame_timeout_ms(LARGEST))
    assert honest.answered_at_ms
    assert honest.answered_at_ms > 190_000


@pytest.mark.parametrize("pool_bytes", [None, 256 * MIB])
def test_a_request_that_trickles_in_is_closed_in_time(pool_bytes: int | None) -> None:
    house = House(pool_bytes)
    trickler = house.client(produce(10 * MIB), 20 * KIB)
    silent = house.client(produce(10)[:3])
    house.pass_time(FRAME_GRACE_MS + 23_000)
    assert trickler.closed_at_ms == frame_timeout_ms(10 * MIB) // SWEEP_MS * SWEEP_MS + SWEEP_MS * 2
    assert "too slowly" in trickler.reason
    assert silent.closed_at_ms is not None
    assert house.memory.given_up_count == 2
    assert house.memory.reserved_bytes == 0


def test_the_time_that_a_process_stood_still_is_nobodys_fault() -> None:
    house = House()
    honest = house.client(produce(10 * MIB), MIB)
    house.pass_time(2_000)
    house.now_ms += 3_600_000
    house.pass_time(10_000)
    assert honest.answered_at_ms


def test_who_waits_for_memory_is_not_late_by_it() -> None:
    house = House(4 * MIB)
    others = [house.client(produce(6 * MIB), MIB // 2) for _ in range(6)]
    waiting = house.client(produce(2 * MIB), MIB // 2)
    house.pass_time(120_000)
    assert waiting.answered_at_ms
    assert not any(client.closed_at_ms for client in (*others, waiting))


def test_those_that_bring_enough_are_not_closed_for_others() -> None:
    house = House(4 * MIB)
    pace = MEMORY_PROGRESS_BYTES_MIN * 1_000 // MEMORY_CHECK_MS * 5 // 4
    slow = [house.client(produce(6 * MIB), pace) for _ in range(6)]
    house.pass_time(60_000)
    assert not any(client.closed_at_ms for client in slow)


HALF_A_TOKEN = produce(500 * KIB)[: 400 * KIB]
STRANGER_COUNT = 700


def test_unauthenticated_clients_leave_the_pool_to_authenticated_ones() -> None:
    house = House()
    honest = house.unauthenticated_client(produce(1_000))
    house.pass_time(STEP_MS)
    for _ in range(STRANGER_COUNT):
        house.unauthenticated_client(HALF_A_TOKEN)
    house.pass_time(2_000)
    part = 256 * MIB // UNAUTHENTICATED_PARTS_OF_POOL
    # The last grant, and one connection at a time, may go past the part.
    assert (
        house.unauthenticated.reserved_bytes
        <= part + STRANGER_COUNT * UNAUTHENTICATED_CHUNK_BYTES + MIB
    )
    assert not house.memory.is_used_up
    honest.answered_at_ms, honest.data = None, produce(900 * KIB)
    began_ms = house.now_ms
    house.pass_time(1_000)
    assert honest.answered_at_ms == began_ms + STEP_MS


def test_without_their_own_part_strangers_would_fill_the_pool() -> None:
    # The bug that the test above is for, planted.
    house = House()
    house.dispatcher.guards = {}
    for _ in range(STRANGER_COUNT):
        house.unauthenticated_client(HALF_A_TOKEN)
    house.pass_time(2_000)
    assert house.memory.is_used_up


def test_logins_are_served_while_strangers_have_used_up_their_part() -> None:
    house = House()
    for _ in range(STRANGER_COUNT):
        house.unauthenticated_client(HALF_A_TOKEN)
    house.pass_time(2_000)
    small = [house.unauthenticated_client(produce(size)) for size in (100, 2_000, 3_000)]
    house.pass_time(1_000)
    assert all(client.answered_at_ms for client in small)
    large = [house.unauthenticated_client(produce(size * KIB)) for size in (20, 100, 500)]
    house.pass_time(40_000)
    assert all(client.answered_at_ms for client in large), [c.reason for c in large]


def test_what_is_held_goes_over_with_a_login() -> None:
    house = House()
    client = house.unauthenticated_client(bytes(produce(1_000)) + bytes(produce(3_000)[:2_500]))
    house.pass_time(STEP_MS)
    assert client.connection.memory is house.memory
    assert house.memory.reserved_bytes
    assert not house.unauthenticated.reserved_bytes
    client.connection.close()
    assert not house.memory.reserved_bytes


def test_a_fall_from_the_peak_is_noted_once_and_not_too_often() -> None:
    house = House()
    falls: list[int] = []

    def fall(client: Client) -> None:
        house.pass_time(2_000)
        client.connection.close()
        for _ in range(12):
            house.pass_time(SWEEP_MS)
            if house.memory.check_fall(house.now_ms):
                falls.append(house.now_ms)

    fall(house.client(produce(2 * TRIM_BYTES)[: TRIM_BYTES + MIB]))
    assert len(falls) == 1
    fall(house.client(produce(2 * TRIM_BYTES)[: TRIM_BYTES // 8]))
    assert len(falls) == 1
    house.memory.check_fall(house.now_ms)
    for _ in range(3):
        fall(house.client(produce(2 * TRIM_BYTES)[: TRIM_BYTES + MIB]))
    assert len(falls) == 4
    assert min(after - before for before, after in pairwise(falls)) >= TRIM_INTERVAL_MS


SIZES = st.sampled_from([10, 5_000, 100 * KIB, MIB, 3 * MIB])
CLIENTS = st.lists(
    st.tuples(SIZES, st.floats(0, 1), st.sampled_from([50 * KIB, MIB, 20 * MIB]), st.booleans()),
    min_size=1,
    max_size=8,
)


@settings(max_examples=30)
@given(CLIENTS)
def test_whole_requests_are_served_eventually_and_small_ones_at_once(
    clients: list[tuple[int, float, int, bool]],
) -> None:
    house = House(MIB)
    honest: list[tuple[Client, int]] = []
    for size, part, pace, is_honest in clients:
        whole = produce(size)
        if is_honest:
            honest.append((house.client(bytes(whole) * 2, MIB), size))
        else:
            house.client(whole[: int(part * len(whole))], pace)
    house.pass_time(90_000)
    for client, size in honest:
        is_small = size < MIB // SMALL_PARTS_OF_POOL
        assert client.answered_at_ms or (client.closed_at_ms and not is_small)
    for client in house.clients:
        client.connection.close()
    assert house.memory.reserved_bytes == 0
    assert not house.memory.waiting_count
