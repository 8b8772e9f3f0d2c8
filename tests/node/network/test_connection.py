import itertools
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ErrorCode, ProtocolError
from ottla.node.clock_driver import RealRng
from ottla.node.network.connection import Connection, Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.request_traces import RequestTraces
from ottla.node.network.response_queue import ResponseSlot
from ottla.wire.apis import API_VERSIONS, HEARTBEAT, OFFSET_COMMIT, PRODUCE
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

HEARTBEAT_VERSION = 3
PRODUCE_VERSION = 7
PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="127.0.0.1",
    peer_port=40_000,
    local_host="127.0.0.1",
    local_port=9092,
)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def request(message: Message, version: int, correlation_id: int) -> bytes:
    key = message.API_KEY
    return framed(
        encode_request_header(key, version, correlation_id, "t") + encode(message, version)
    )


def heartbeat(correlation_id: int, group_id: str = "g") -> bytes:
    message = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m")
    return request(message, HEARTBEAT_VERSION, correlation_id)


def produce(correlation_id: int, records: bytes = b"records", acks: int = -1) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    message = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    return request(message, PRODUCE_VERSION, correlation_id)


def commit(correlation_id: int) -> bytes:
    return request(OffsetCommitRequest(group_id="g"), 8, correlation_id)


class Host:
    """Host of a connection that records its requests, and runs coroutines only on demand."""

    def __init__(self) -> None:
        self.work_count = 0
        self.pending: list[tuple[ResponseSlot, Coroutine[Any, Any, Message | None]]] = []
        self.wakes: list[int] = []
        self.faults: list[Exception] = []

    def on_work(self, connection: Connection) -> None:
        self.work_count += 1

    def run(
        self,
        connection: Connection,
        slot: ResponseSlot,
        pending: Pending,
    ) -> None:
        assert isinstance(pending, Coroutine)
        self.pending.append((slot, pending))

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        self.faults.append(fault)

    def give_up(self, connection: Connection, reason: str) -> None:
        connection.close()

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        self.wakes.append(deadline_ms)

    def finish_first(self, connection: Connection) -> None:
        slot, pending = self.pending.pop(0)
        try:
            pending.send(None)
        except StopIteration as stop:
            connection.on_coroutine_ended(slot, stop.value)


class World:
    """A connection under test: its handlers keep every request and answer heartbeats at once."""

    def __init__(
        self, limits: ConnectionLimits | None = None, memory_bytes: int | None = None
    ) -> None:
        self.seen: list[tuple[int, Any]] = []
        self.contexts: list[RequestContext] = []
        self.holds: set[int] = set()
        self.awaits: set[int] = set()
        self.host = Host()
        self.memory = RequestMemory(memory_bytes)
        self.dispatcher = Dispatcher({HEARTBEAT: self.on_heartbeat, PRODUCE: self.on_produce})
        self.connection = Connection(
            PEER,
            self.dispatcher,
            self.host,
            memory=self.memory,
            limits=limits or ConnectionLimits(),
            now_ms=0,
        )

    def on_heartbeat(self, context: RequestContext, body: HeartbeatRequest) -> Any:
        return self.answer(context, body, HeartbeatResponse(throttle_time_ms=len(body.group_id)))

    def on_produce(self, context: RequestContext, body: ProduceRequest) -> Any:
        return self.answer(context, body, ProduceResponse(responses=[]))

    def answer(self, context: RequestContext, body: Any, response: Message) -> Any:
        correlation_id = context.correlation_id
        self.seen.append((correlation_id, body))
        self.contexts.append(context)
        if correlation_id in self.awaits:
            return self.answer_later(None if correlation_id in self.holds else response)
        return None if correlation_id in self.holds else response

    async def answer_later(self, response: Message | None) -> Message | None:
        return response

    def feed(self, data: bytes, now_ms: int = 0) -> None:
        self.connection.on_bytes(memoryview(bytearray(data)), now_ms)

    def complete(self, correlation_id: int) -> None:
        context = next(c for c in self.contexts if c.correlation_id == correlation_id)
        is_produce = context.header.api_key == PRODUCE
        context.complete(ProduceResponse() if is_produce else HeartbeatResponse())

    @property
    def seen_ids(self) -> list[int]:
        return [correlation_id for correlation_id, _ in self.seen]

    def take_output(self) -> bytes:
        output = self.connection.output
        data = b"".join(bytes(chunk) for chunk in output.chunks)  # type: ignore[arg-type]
        assert len(data) == output.byte_count
        self.connection.on_sent(len(data), 0)
        return data

    def take_answered_ids(self) -> list[int]:
        data = self.take_output()
        ids = []
        while data:
            length, correlation_id = struct.unpack_from(">ii", data)
            ids.append(correlation_id)
            data = data[4 + length :]
        return ids


def test_requests_fed_byte_by_byte_are_answered_like_whole_ones() -> None:
    data = heartbeat(1) + produce(2) + heartbeat(3, "a longer group")
    whole, crumbs = World(), World()
    whole.feed(data)
    for byte in data:
        crumbs.feed(bytes([byte]))
    assert crumbs.seen_ids == [1, 2, 3]
    assert crumbs.take_output() == whole.take_output()


def test_several_late_responses_wake_the_host_once_until_they_are_sent() -> None:
    world = World()
    world.holds = {1, 2, 3, 4}
    world.feed(b"".join(map(produce, (1, 2, 3, 4))))
    for correlation_id in (1, 2, 3):
        world.complete(correlation_id)
    assert world.host.work_count == 1
    assert world.take_answered_ids() == [1, 2, 3]
    world.complete(4)
    assert world.host.work_count == 2


def test_a_late_response_wakes_the_host_if_held_requests_may_start() -> None:
    world = World(ConnectionLimits(requests_in_flight_max=2))
    world.holds = {1, 2}
    world.feed(b"".join(map(produce, (1, 2, 3))))
    for correlation_id in (1, 2):
        world.complete(correlation_id)
    assert world.host.work_count == 2


@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 4000), min_size=1, max_size=20),
    use_window=st.booleans(),
)
def test_however_the_stream_is_cut_the_same_requests_are_seen(
    sizes: list[int], cuts: list[int], use_window: bool
) -> None:
    data = b"".join(produce(i, bytes([i]) * size) for i, size in enumerate(sizes))
    world = World()
    at = 0
    turn = 0
    while at < len(data):
        size = min(cuts[turn % len(cuts)], len(data) - at)
        turn += 1
        window = world.connection.window() if use_window else None
        if window is None:
            world.feed(data[at : at + size])
        else:
            size = min(size, len(window))
            window[:size] = data[at : at + size]
            world.connection.on_window_filled(size, 0)
        at += size
    records = [bytes(body.topic_data[0].partition_data[0].records) for _, body in world.seen]
    assert records == [bytes([i]) * size for i, size in enumerate(sizes)]
    assert world.take_answered_ids() == list(range(len(sizes)))
    assert not world.connection.awaits_resume
    assert world.memory.reserved_bytes == 0


def test_records_of_a_produce_are_a_view_of_what_was_read_never_a_copy() -> None:
    world = World()
    buffer = bytearray(produce(1, b"x" * 1000))
    world.connection.on_bytes(memoryview(buffer), 0)
    records = world.seen[0][1].topic_data[0].partition_data[0].records
    assert records.obj is buffer
    records[:4] = b"yyyy"
    assert b"yyyyxxxx" in buffer


def test_a_produce_that_waits_after_its_append_does_not_hold_up_the_next_request() -> None:
    world = World()
    world.holds = {1, 2}
    world.feed(produce(1) + produce(2) + heartbeat(3))
    assert world.seen_ids == [1, 2, 3]


def test_answers_leave_in_request_order_however_they_are_completed() -> None:
    world = World()
    world.holds = {1, 2}
    world.feed(produce(1) + produce(2) + heartbeat(3))
    assert world.take_answered_ids() == []
    world.complete(2)
    assert world.take_answered_ids() == []
    world.complete(1)
    assert world.take_answered_ids() == [1, 2, 3]


def test_a_waiting_request_that_is_no_produce_holds_up_take_up_until_it_is_answered() -> None:
    world = World()
    world.holds = {1}
    world.feed(heartbeat(1) + produce(2))
    assert world.seen_ids == [1]
    world.complete(1)
    assert world.host.work_count == 1
    world.connection.resume(0)
    assert world.seen_ids == [1, 2]
    assert world.take_answered_ids() == [1, 2]


def test_a_produce_that_awaits_before_its_append_holds_up_take_up_until_it_has_appended() -> None:
    world = World()
    world.awaits = {1}
    world.holds = {1}
    world.feed(produce(1) + produce(2))
    assert world.seen_ids == [1]
    world.host.finish_first(world.connection)
    world.connection.resume(0)
    assert world.seen_ids == [1, 2]
    assert world.take_answered_ids() == []
    world.complete(1)
    assert world.take_answered_ids() == [1, 2]


def test_take_up_goes_on_past_a_commit_that_is_decided_and_waits_to_be_committed() -> None:
    world = World()
    world.dispatcher.register(OFFSET_COMMIT, world.on_heartbeat)
    world.holds = {1, 2}
    world.feed(commit(1) + commit(2) + heartbeat(3, "g"))
    assert world.seen_ids == [1, 2, 3]
    assert not world.take_answered_ids(), "answers keep the order of requests"
    for number in (2, 1):
        context = world.contexts[number - 1]
        context.complete(OffsetCommitResponse())
    assert world.take_answered_ids() == [1, 2, 3]


def test_a_coroutine_that_ends_with_none_still_pauses_what_is_no_produce() -> None:
    world = World()
    world.awaits = {1}
    world.holds = {1}
    world.feed(heartbeat(1) + heartbeat(2))
    world.host.finish_first(world.connection)
    world.connection.resume(0)
    assert world.seen_ids == [1]
    world.complete(1)
    world.connection.resume(0)
    assert world.seen_ids == [1, 2]


def test_a_coroutine_of_produce_keeps_its_records_while_more_is_read() -> None:
    world = World()
    world.awaits = {1}
    buffer = bytearray(produce(1, b"mine") + produce(2, b"next"))
    world.connection.on_bytes(memoryview(buffer), 0)
    assert world.connection.has_lent_buffer
    world.feed(produce(3, b"more"))
    records = world.seen[0][1].topic_data[0].partition_data[0].records
    assert bytes(records) == b"mine"
    world.host.finish_first(world.connection)
    world.connection.resume(0)
    assert world.take_answered_ids() == [1, 2, 3]


def test_an_error_under_acks_0_closes_after_earlier_responses_and_drops_later_requests() -> None:
    world = World()
    world.holds = {1, 2}
    world.feed(produce(1))
    world.feed(produce(2, acks=0))
    world.contexts[1].close_connection()
    world.feed(produce(3))
    assert world.seen_ids == [1, 2]
    assert not world.connection.is_closing
    assert not world.connection.wants_bytes
    world.complete(1)
    assert world.connection.is_closing
    assert world.take_answered_ids() == [1]


def test_a_silent_produce_is_followed_by_the_next_answer() -> None:
    world = World()
    world.holds = {1}
    world.feed(produce(1, acks=0) + heartbeat(2))
    world.contexts[0].complete_silently()
    assert world.take_answered_ids() == [2]


GARBAGE = {
    "length -1": struct.pack(">i", -1) + bytes(100),
    "length 0": struct.pack(">i", 0) + bytes(100),
    "length 7, below the smallest header": struct.pack(">i", 7) + bytes(7),
    "length of 2 GiB - 1": struct.pack(">i", (1 << 31) - 1),
    "length one above the bound": struct.pack(">i", 1001),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303"),
    "an unknown api key": framed(struct.pack(">hhih", 999, 0, 1, -1)),
    "a negative api key": framed(struct.pack(">hhih", -5, 0, 1, -1)),
    "an api without handler": framed(struct.pack(">hhih", 1, 11, 1, -1)),
    "a version too high": framed(struct.pack(">hhih", PRODUCE, 99, 1, -1) + b"\0"),
    "a version too low": framed(struct.pack(">hhih", PRODUCE, 2, 1, -1)),
    "a negative version": framed(struct.pack(">hhih", HEARTBEAT, -1, 1, -1)),
    "a header without body": framed(struct.pack(">hhih", HEARTBEAT, 3, 1, -1)),
    "a header cut short": framed(struct.pack(">hhi", HEARTBEAT, 3, 1)),
    "a client id beyond the frame": framed(struct.pack(">hhih", HEARTBEAT, 3, 1, 500)),
    "a client id that is no text": framed(struct.pack(">hhih", HEARTBEAT, 3, 1, 2) + b"\xff\xfe"),
    "a body of noise": framed(struct.pack(">hhih", PRODUCE, 7, 1, -1) + bytes(range(200))),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_bytes_that_are_not_the_protocol_are_a_protocol_error(name: str) -> None:
    world = World(ConnectionLimits(frame_bytes_max=1000))
    with pytest.raises(ProtocolError):
        world.feed(GARBAGE[name])
    world.connection.close()
    assert world.memory.reserved_bytes == 0


@pytest.mark.parametrize("name", GARBAGE)
def test_the_requests_before_the_garbage_are_answered(name: str) -> None:
    world = World(ConnectionLimits(frame_bytes_max=1000))
    with pytest.raises(ProtocolError):
        world.feed(heartbeat(7) + GARBAGE[name])
    assert world.take_answered_ids() == [7]


@given(st.binary(max_size=300))
def test_noise_raises_a_protocol_error_or_waits_for_more(data: bytes) -> None:
    world = World(ConnectionLimits(frame_bytes_max=1000))
    try:
        world.feed(data)
        world.feed(data)
    except ProtocolError:
        return
    assert len(data) < 1000


def test_bytes_after_a_body_are_passed_over_as_librdkafka_sends_some() -> None:
    world = World()
    world.feed(framed(heartbeat(1)[4:] + bytes(3)) + heartbeat(2))
    assert world.take_answered_ids() == [1, 2]


def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    world = World()

    def answer(context: RequestContext, _: Any) -> None:
        context.complete_as(ApiVersionsResponse(error_code=35), 0)

    world.dispatcher.register(API_VERSIONS, answer)
    world.dispatcher.on_unsupported_api_versions = answer
    world.feed(framed(struct.pack(">hhih", API_VERSIONS, 99, 5, -1) + b"\0noise"))
    world.feed(request(ApiVersionsRequest(), 0, 6))
    data = world.take_output()
    assert struct.unpack_from(">i", data, 4) == (5,)
    length = struct.unpack_from(">i", data)[0]
    assert decode(ApiVersionsResponse, 0, data[8 : 4 + length]).error_code == 35


def test_an_announced_length_takes_no_memory_before_its_bytes_arrive() -> None:
    world = World()
    world.feed(struct.pack(">i", 90_000_000) + bytes(10))
    window = world.connection.window()
    assert window is not None
    assert len(window) <= 4096
    assert world.memory.reserved_bytes <= 4096


def test_frames_beyond_the_turns_bound_wait_for_the_next_turn() -> None:
    world = World(ConnectionLimits(frames_per_turn_max=3))
    world.feed(b"".join(heartbeat(i) for i in range(8)))
    assert world.seen_ids == [0, 1, 2]
    assert world.connection.has_more_to_take_up
    world.connection.resume(0)
    world.connection.resume(0)
    assert world.take_answered_ids() == list(range(8))
    assert not world.connection.has_more_to_take_up


def test_requests_that_take_long_end_the_turn_and_the_rest_waits_for_the_next() -> None:
    world = World(ConnectionLimits(turn_ns_max=5_000_000))
    clock = world.dispatcher.clock
    instants = itertools.count(0, 2_000_000)
    clock.now_ns = lambda: next(instants)
    world.feed(b"".join(heartbeat(i) for i in range(8)))
    assert 1 < len(world.seen) < 4
    assert world.connection.has_more_to_take_up
    # It comes so late in another turn that nothing is left of that: one request is served.
    before = len(world.seen)
    world.connection.resume(0)
    assert len(world.seen) == before + 1
    while world.connection.has_more_to_take_up:
        clock.turn_ns = next(instants)
        world.connection.resume(0)
    assert world.take_answered_ids() == list(range(8))


def test_requests_in_flight_are_bounded() -> None:
    world = World(ConnectionLimits(requests_in_flight_max=2))
    world.holds = {0, 1, 2}
    world.feed(produce(0) + produce(1) + produce(2))
    assert world.seen_ids == [0, 1]
    world.complete(0)
    world.connection.resume(0)
    assert world.seen_ids == [0, 1, 2]


def test_a_client_that_reads_no_answers_is_served_no_further() -> None:
    world = World(ConnectionLimits(write_backlog_bytes_max=30))
    world.feed(b"".join(heartbeat(i) for i in range(10)))
    taken_up = len(world.seen)
    assert 1 <= taken_up < 10
    world.connection.on_sent(world.connection.output.byte_count, 0)
    assert world.host.work_count == 1
    world.connection.resume(0)
    assert len(world.seen) > taken_up


def test_a_paused_connection_stops_reading_once_it_holds_enough() -> None:
    world = World()
    world.holds = {1}
    world.feed(heartbeat(1))
    assert world.connection.wants_bytes
    for correlation_id in range(2, 30):
        world.feed(produce(correlation_id, bytes(4000)))
    assert not world.connection.wants_bytes
    world.complete(1)
    world.connection.resume(0)
    assert world.connection.wants_bytes
    assert world.take_answered_ids() == list(range(1, 30))


def test_with_the_pool_used_up_a_connection_is_not_read_until_another_gives_back() -> None:
    first, second = World(memory_bytes=1000), World()
    second.memory = first.memory
    second.connection.memory = first.memory
    whole = produce(1, bytes(20_000))
    first.feed(whole[:5000])
    second.feed(whole[:5000])
    assert first.connection.wants_bytes
    assert not second.connection.wants_bytes
    first.feed(whole[5000:])
    assert first.take_answered_ids() == [1]
    assert second.host.work_count == 1
    assert second.connection.wants_bytes
    second.feed(whole[5000:])
    assert second.take_answered_ids() == [1]
    assert first.memory.reserved_bytes == 0


def test_a_closed_connection_gives_its_memory_back_and_parts_from_who_waits_for_it() -> None:
    world = World()
    world.holds = {1}
    world.feed(produce(1) + produce(2, bytes(500))[:100])
    abandoned = []
    world.contexts[0].on_abandoned = lambda: abandoned.append(1)
    assert world.memory.reserved_bytes > 0
    world.connection.close()
    world.connection.close()
    assert abandoned == [1]
    assert world.memory.reserved_bytes == 0
    world.complete(1)
    assert world.take_output() == b""


def test_a_muted_connection_reads_nothing_until_the_latest_of_its_delays() -> None:
    world = World()
    world.feed(heartbeat(1), now_ms=100)
    world.contexts[0].mute_until(500)
    world.contexts[0].mute_until(900)
    world.contexts[0].mute_until(300)
    assert world.host.wakes == [500, 900]
    assert not world.connection.wants_bytes
    assert world.take_answered_ids() == [1]
    world.feed(heartbeat(2), now_ms=400)
    world.connection.resume(500)
    assert world.seen_ids == [1]
    world.connection.resume(900)
    assert world.seen_ids == [1, 2]
    assert world.connection.wants_bytes


@pytest.mark.parametrize("code", [1 << 40, "no number", None, object()])
def test_an_answer_that_cannot_be_written_ends_its_own_connection_only(code: Any) -> None:
    world = World()
    world.holds = {1}
    world.feed(heartbeat(1))
    # The class of a heartbeat's answer may be compiled, and refuses what is no number itself.
    kind = HeartbeatResponse if isinstance(code, int) else LeaveGroupResponse
    world.contexts[0].complete(kind(error_code=code))
    assert len(world.host.faults) == 1


def test_a_waiting_request_that_cannot_be_abandoned_keeps_no_other_from_it() -> None:
    world = World()
    world.holds = {1, 2}
    world.feed(produce(1) + produce(2) + heartbeat(3)[:-1])
    abandoned = []

    def fails() -> None:
        raise RuntimeError

    world.contexts[0].on_abandoned = fails
    world.contexts[1].on_abandoned = lambda: abandoned.append(2)
    world.connection.close()
    assert abandoned == [2]
    assert world.memory.reserved_bytes == 0
    assert world.dispatcher.errors.counts == {"request": 1}


def test_a_request_is_never_answered_twice() -> None:
    world = World()
    world.holds = {1}
    world.feed(heartbeat(1))
    world.complete(1)
    with pytest.raises(AssertionError, match="answered twice"):
        world.complete(1)


def test_a_traced_request_is_done_when_its_answer_has_left() -> None:
    world = World()
    watch = iter(range(1_000))
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: next(watch))
    world.dispatcher.traces = traces
    world.holds = {1}
    world.feed(produce(1) + produce(2))

    def traced() -> list[str]:
        return [trace.name for trace in traces.take(10)]

    assert traced() == []
    world.take_output()
    assert traced() == []  # the second is answered, but its turn has not come

    world.complete(1)
    assert traced() == []
    world.take_output()
    assert traced() == ["Produce", "Produce"]


def test_a_trace_knows_the_error_that_the_request_was_answered_with() -> None:
    world = World()
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: 0)
    world.dispatcher.traces = traces
    world.holds = {1, 2}
    world.feed(heartbeat(1))
    world.contexts[0].complete(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    world.feed(heartbeat(2))
    world.contexts[1].complete(HeartbeatResponse())
    world.take_output()

    refused, served = traces.take(10)
    assert (refused.error, refused.attributes["error.type"]) == ("UNKNOWN_MEMBER_ID",) * 2
    assert served.error is None and "error.type" not in served.attributes


def test_a_request_without_an_answer_is_traced_too() -> None:
    world = World()
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: 0)
    world.dispatcher.traces = traces
    world.holds = {1}
    world.feed(produce(1, acks=0))
    world.contexts[0].complete_silently()

    assert traces.take(10)[0].name == "Produce"


def test_what_is_traced_on_a_connection_that_closes_is_forgotten() -> None:
    world = World()
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: 0)
    world.dispatcher.traces = traces
    world.feed(heartbeat(1))
    world.connection.close()

    assert traces.take(10) == []


def test_an_answer_that_is_a_refusal_is_counted_by_its_code() -> None:
    world = World()
    world.holds = {1}
    world.feed(heartbeat(1) + heartbeat(2))
    world.contexts[0].complete(HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))

    errors = dict(world.dispatcher.times.errors.samples())

    assert errors == {("Heartbeat", "UNKNOWN_MEMBER_ID"): 1}


class Watch:
    """A stopwatch by hand, the dispatcher's."""

    def __init__(self, world: World) -> None:
        self._times, self._clock = world.dispatcher.times, world.dispatcher.clock
        self._clock.now_ns = lambda: self.now_ns
        self.now_ns = 1_000
        self.begin_turn()

    def begin_turn(self, after_ns: int = 0) -> None:
        self.now_ns += after_ns
        self._clock.turn_ns = self.now_ns

    def answers_queued(self, api_key: int, version: int) -> tuple[int, int]:
        found = self._times.of(api_key, version).answer_queued
        return found.count, found.sum

    def answers_sent(self, api_key: int, version: int) -> tuple[int, int]:
        found = self._times.of(api_key, version).answer_sent
        return found.count, found.sum


def test_an_answer_that_waits_for_those_before_it_has_queued() -> None:
    world = World()
    watch = Watch(world)
    world.holds = {1, 2}
    world.feed(produce(1) + produce(2) + heartbeat(3))
    watch.now_ns += 400
    world.complete(2)
    watch.now_ns += 600
    world.complete(1)

    assert world.take_answered_ids() == [1, 2, 3]
    assert watch.answers_queued(HEARTBEAT, HEARTBEAT_VERSION) == (1, 1_000)
    assert watch.answers_queued(PRODUCE, PRODUCE_VERSION) == (1, 600), "the first did not wait"


def test_a_response_sent_within_its_turn_has_no_send_time() -> None:
    world = World()
    watch = Watch(world)
    world.feed(heartbeat(1))
    size = world.connection.output.byte_count
    for part in (1, size - 1):
        watch.now_ns += 50
        world.connection.on_sent(part, 0)
    assert watch.answers_sent(HEARTBEAT, HEARTBEAT_VERSION) == (0, 0)


@pytest.mark.parametrize("taken_at_first", [0, 1])
def test_an_answer_that_a_socket_takes_later_tells_how_long_that_took(taken_at_first: int) -> None:
    world = World()
    watch = Watch(world)
    world.feed(heartbeat(1))
    size = world.connection.output.byte_count
    if taken_at_first:
        world.connection.on_sent(taken_at_first, 0)
    else:
        world.connection.on_stalled()
    watch.begin_turn(after_ns=5_000)
    watch.now_ns += 300
    world.connection.on_sent(size - taken_at_first, 0)
    assert watch.answers_sent(HEARTBEAT, HEARTBEAT_VERSION) == (1, 5_300)

    watch.begin_turn(after_ns=5_000)
    world.feed(heartbeat(2))
    world.take_output()
    assert watch.answers_sent(HEARTBEAT, HEARTBEAT_VERSION) == (1, 5_300), "the next one was quick"
