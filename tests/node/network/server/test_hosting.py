"""The host of all connections: an error in one of them ends that one alone."""

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from ottla.model.run_now import run_now
from ottla.node.network.connection import Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, MalformedRequestError, Peer, RequestContext
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.server.hosting import ConnectionHosting, HostedChannel
from ottla.storage.disk.slice import SliceError
from ottla.wire.apis import HEARTBEAT
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse


class FrozenClock:
    """Time that stands."""

    def monotonic_ms(self) -> int:
        return 0

    wall_ms = monotonic_ms


class Pipe(HostedChannel):
    """A transport in memory; `trouble` is raised by the call of that name."""

    def __init__(self, hosting: "House") -> None:
        super().__init__(hosting)
        self.arrived: list[bytes] = []
        self.sent = b""
        self.is_hung_up = False
        self.trouble: dict[str, Exception] = {}

    def _meet(self, call: str) -> None:
        if call in self.trouble:
            raise self.trouble[call]

    @property
    def has_more_to_write(self) -> bool:
        return False

    def read(self, now_ms: int) -> bool:
        self._meet("read")
        if not self.arrived:
            return False
        self.connection.on_bytes(memoryview(bytearray(self.arrived.pop(0))), now_ms)
        return True

    def flush(self, now_ms: int) -> None:
        self._meet("flush")
        output = self.connection.output
        self.sent += b"".join(bytes(chunk) for chunk in output.chunks)  # type: ignore[arg-type]
        self.connection.on_sent(output.byte_count, now_ms)

    def close_socket(self) -> None:
        self.is_hung_up = True
        self._meet("hang up")


class House(ConnectionHosting[Pipe]):
    """Two clients of a server that answers heartbeats."""

    def __init__(self, answer: Callable[[str], Any] | None = None) -> None:
        self.file_errors: list[str] = []
        self.lines: list[str] = []
        self.turn_count = 0
        self._answer = answer or (lambda group_id: HeartbeatResponse())
        dispatcher = Dispatcher({HEARTBEAT: self._on_heartbeat})
        dispatcher.on_file_error = lambda path, error: self.file_errors.append(path)
        super().__init__(
            dispatcher,
            clock=FrozenClock(),
            limits=ConnectionLimits(),
            memory=RequestMemory(None),
        )
        self.first, self.second = self._client(1), self._client(2)

    @property
    def error_counts(self) -> dict[str, int]:
        return dict(self._errors.counts)

    def _on_heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> Any:
        return self._answer(request.group_id)

    def _client(self, number: int) -> Pipe:
        pipe = Pipe(self)
        peer = Peer(
            connection_id=number,
            listener_name="PLAINTEXT",
            peer_host="10.0.0.9",
            peer_port=40_000 + number,
            local_host="10.0.0.1",
            local_port=9092,
        )
        self.host(pipe, peer, 0)
        return pipe

    def ask(self, client: Pipe, *arrived: bytes) -> None:
        """Let bytes arrive, each some at one event."""
        client.arrived += arrived
        for _ in arrived:
            self._serve(self._on_event, client, 0, 0)

    def _on_event(self, client: Pipe, _: int, now_ms: int) -> None:
        self._read(client, now_ms)
        self._flush(client, 0, now_ms)

    def the_other_is_served(self) -> bool:
        """Return whether the second client is answered still."""
        before = len(self.second.sent)
        self._answer = lambda group_id: HeartbeatResponse()
        self.ask(self.second, heartbeat(9))
        return len(self.second.sent) > before and not self.second.connection.is_closed

    # Its transport.

    def run_pending(self, channel: Pipe, slot: ResponseSlot, pending: Pending) -> None:
        run_now(self._await_pending(channel, slot, pending))

    async def _result_of(self, slot: ResponseSlot, pending: Any) -> Message | None:
        result: Message | None = await pending
        return result

    def _have_turn(self) -> None:
        self.turn_count += 1

    def _rearm(self) -> None:
        pass

    def _watch(self, channel: Pipe) -> None:
        pass

    def _on_closed(self, channel: Pipe) -> None:
        pass

    def _log(self, lines: Any, now_ms: int, line: str) -> None:
        self.lines.append(line)


def heartbeat(correlation_id: int, group_id: str = "g") -> bytes:
    body = encode(HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"), 3)
    frame = encode_request_header(HEARTBEAT, 3, correlation_id, "t") + body
    return struct.pack(">i", len(frame)) + frame


def test_bad_input_closes_its_connection_after_the_earlier_responses() -> None:
    house = House()
    house.ask(house.first, heartbeat(1) + b"\xff" * 8)
    assert int.from_bytes(house.first.sent[4:8]) == 1
    assert house.first.connection.is_closed
    assert house.first.is_hung_up
    assert house.closed_for_bad_input_count == 1
    assert len(house.lines) == 1
    assert house.error_counts == {}
    assert house.connection_count == 1
    assert house.the_other_is_served()


def _bug(group_id: str) -> Any:
    raise ValueError("a bug of ours")


async def _late(error: Exception) -> Message:
    raise error


@pytest.mark.parametrize("answer", [_bug, lambda group_id: _late(ValueError("a bug of ours"))])
def test_a_bug_in_a_handler_ends_its_connection_and_is_counted(answer: Any) -> None:
    house = House(answer)
    house.ask(house.first, heartbeat(1))
    assert house.first.is_hung_up
    assert house.error_counts == {"connection": 1}
    assert house.lines == []
    assert house.the_other_is_served()


def test_a_request_that_is_malformed_far_inside_is_bad_input() -> None:
    house = House(lambda group_id: _late(MalformedRequestError("far inside")))
    house.ask(house.first, heartbeat(1))
    assert house.first.is_hung_up
    assert (house.closed_for_bad_input_count, house.error_counts) == (1, {})
    assert house.the_other_is_served()


@pytest.mark.parametrize("call", ["read", "flush"])
@pytest.mark.parametrize(
    ("trouble", "counts", "file_errors"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), {}, []),
        (OSError(errno.EIO, "odd"), {"connection": 1}, []),
        (ValueError("a bug of ours"), {"connection": 1}, []),
        (SliceError(OSError(errno.EIO, "a disk"), "/data/log"), {}, ["/data/log"]),
    ],
)
def test_a_transport_that_fails_ends_its_connection(
    call: str, trouble: Exception, counts: dict[str, int], file_errors: list[str]
) -> None:
    house = House()
    house.first.trouble[call] = trouble
    house.ask(house.first, heartbeat(1))
    assert house.first.connection.is_closed
    assert house.error_counts == counts
    assert house.file_errors == file_errors
    assert house.the_other_is_served()


def test_a_transport_that_cannot_be_closed_is_forgotten_and_counted() -> None:
    house = House()
    house.first.trouble["hang up"] = ValueError("a bug of ours")
    house.ask(house.first, b"\xff" * 8)
    assert house.connection_count == 1
    assert house.error_counts == {"connection": 1}
    assert house.the_other_is_served()


def test_a_connection_whose_client_has_ended_is_closed() -> None:
    house = House()
    house.ask(house.first, heartbeat(1))
    assert not house.first.is_hung_up
    house._serve(house._on_event, house.first, 0, 0)
    assert house.first.is_hung_up
    assert house.lines == []


def test_a_connection_that_is_given_up_is_closed_with_a_line() -> None:
    house = House()
    house.first.connection.give_up("too slow")
    assert house.first.is_hung_up
    assert house.lines == [f"closed connection {house.first.connection.peer.label}: too slow"]
    assert house.the_other_is_served()


def test_a_closed_connection_is_closed_once() -> None:
    house = House()
    house.give_up(house.first, "once")
    house.on_fault(house.first, ValueError("twice"))
    assert house.error_counts == {}


def test_channels_are_served_when_their_time_has_come() -> None:
    house = House()
    house.wake_at(house.second, 20)
    house.wake_at(house.first, 10)
    assert house._next_wake_ms() == 10
    house._on_wakes_due(15)
    assert list(house._ready) == [house.first]
    assert house.turn_count == 1
    assert house._next_wake_ms() == 20


def test_a_connection_that_ends_while_it_is_read_is_not_flushed() -> None:
    house = House(lambda group_id: house.give_up(house.first, "meanwhile"))
    house.first.trouble["flush"] = AssertionError("flushed after its end")
    house.ask(house.first, heartbeat(1))
    assert house.first.is_hung_up
    assert house.error_counts == {}


def test_a_wake_that_falls_into_a_turn_is_not_lost() -> None:
    house = House()
    client = house.first
    client.connection.mute_until(5)
    house._on_wakes_due(5)
    # The end of a turn sends what is to be sent, and must not take that for all there is to do.
    house._flush_completed(5)
    assert client in house._ready
    client.connection.resume(5)
    assert client.connection.wants_bytes
