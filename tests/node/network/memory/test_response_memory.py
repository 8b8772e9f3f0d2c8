"""Answers that clients do not read are bounded over all connections."""

import struct

import pytest

from ottla.model.limits import KIB, MIB, RESPONSE_MEMORY_BYTES_MAX, WRITE_BACKLOG_BYTES_MAX
from ottla.node.network.connection import Connection, Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.memory.response_memory import ResponseMemory
from ottla.node.network.response_queue import ResponseSlot
from ottla.wire.apis import DESCRIBE_GROUPS
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

ANSWER = DescribeGroupsResponse(
    groups=[DescribedGroup(group_id="g", protocol_data="x" * 30_000) for _ in range(32)]
)
"""Some MiB less a little."""

HEADER = encode_request_header(DESCRIBE_GROUPS, 0, 1, "t")
BODY = encode(DescribeGroupsRequest(groups=["g"]), 0)
REQUEST = struct.pack(">i", len(HEADER) + len(BODY)) + HEADER + BODY


class House:
    """The pools, and the connections that share them."""

    def __init__(self) -> None:
        self.memory = RequestMemory(None)
        self.dispatcher = Dispatcher({DESCRIBE_GROUPS: self.on_describe})
        self.clients: list[Client] = []

    def on_describe(
        self, context: RequestContext, request: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        return ANSWER

    @property
    def held_bytes(self) -> int:
        return sum(client.connection.output.byte_count for client in self.clients)


class Client:
    """Sends many requests and reads as fast as the test decides; host of its connection."""

    def __init__(self, house: House) -> None:
        peer = Peer(
            connection_id=len(house.clients),
            listener_name="PLAINTEXT",
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
            now_ms=0,
        )
        self.read_bytes = 0
        self.is_closed = False
        house.clients.append(self)

    def send(self, count: int) -> None:
        self.connection.on_bytes(memoryview(bytearray(REQUEST * count)), 0)
        self.turn(0)

    def turn(self, read_bytes: int) -> None:
        """Let the socket accept a number of bytes, as the server does at the end of a turn."""
        connection = self.connection
        if connection.is_closed:
            return
        size = min(read_bytes, connection.output.byte_count)
        if size:
            self.read_bytes += size
            connection.on_sent(size, 0)
        if connection.output.byte_count:
            connection.on_stalled()
        connection.resume(0)

    def on_work(self, connection: Connection) -> None:
        pass

    def run(self, connection: Connection, slot: ResponseSlot, pending: Pending) -> None:
        raise AssertionError("no handler here awaits")

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        raise fault

    def give_up(self, connection: Connection, reason: str) -> None:
        assert "does not read" in reason
        self.is_closed = True
        connection.close()

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        raise AssertionError("no connection is throttled here")


def test_unread_responses_are_bounded_over_all_connections() -> None:
    house = House()
    for _ in range(200):
        Client(house).send(40)
        assert house.held_bytes <= 2 * RESPONSE_MEMORY_BYTES_MAX + WRITE_BACKLOG_BYTES_MAX + MIB
    assert house.memory.answers.held_bytes == house.held_bytes
    house.memory.sweep(0)
    assert house.held_bytes < RESPONSE_MEMORY_BYTES_MAX


def test_who_reads_is_served_to_the_end_whatever_the_others_do() -> None:
    house = House()
    for _ in range(100):
        Client(house).send(40)
    reader = Client(house)
    reader.send(40)
    whole = 40 * (len(encode(ANSWER, 0)) + 8)
    for second in range(200):
        reader.turn(MIB)
        for client in house.clients[:100]:
            client.turn(0)
        house.memory.sweep(second * 1_000)
    assert not reader.is_closed
    assert reader.read_bytes == whole
    assert house.memory.answers.given_up_count > 0
    reader.connection.close()
    for client in house.clients:
        client.connection.close()
    assert house.memory.answers.held_bytes == 0


def test_who_reads_slowly_and_not_too_much_is_left_alone() -> None:
    house = House()
    slow = Client(house)
    slow.send(40)
    for second in range(60):
        slow.turn(KIB)
        house.memory.sweep(second * 1_000)
    assert not slow.is_closed


def test_a_socket_that_takes_everything_costs_the_pool_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = House()
    client = Client(house)
    monkeypatch.setattr(ResponseMemory, "settle", None)
    for _ in range(50):
        client.connection.on_bytes(memoryview(bytearray(REQUEST)), 0)
        client.connection.on_sent(client.connection.output.byte_count, 0)
    assert house.memory.answers.held_bytes == 0
