"""Fetch sessions of several clients, against the wanted partitions of each and the logs."""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.bench.requests import frame_of
from ottla.client.fetch.fetch_session import FetchSessionHandler
from ottla.jepsen.fuzz.mini_broker import PARTITION_COUNT, TOPIC, WALL_MS, MiniBroker, id_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicIdPartition
from ottla.model.limits import MIB
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

FETCH_VERSION = 17
HEADER_BYTES = 4 + 4 + 1
"""Of a response with tagged fields: its length, the correlation id, and no tags."""
SLOT_COUNT = 2
CLIENT_COUNT = 3
FETCHES = 4
"""Fetches within which a client has all there is: its session may be lost, and refused once."""


def asked(index: int, offset: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=MIB)


class Sessions(RuleBasedStateMachine):
    """Clients with a handler of sessions each, one broker with fewer slots than clients."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = MiniBroker(frame_bytes_max=MIB)
        self.sessions = self.broker.core.data.fetch.sessions
        self.sessions.slot_count = SLOT_COUNT
        self.handlers = [FetchSessionHandler() for _ in range(CLIENT_COUNT)]
        self.wanted: list[dict[int, int]] = [{} for _ in range(CLIENT_COUNT)]
        """Of each client: the offset it wants of each partition."""
        self.ends = [0] * PARTITION_COUNT

    clients = st.integers(0, CLIENT_COUNT - 1)
    indexes = st.integers(0, PARTITION_COUNT - 1)

    @rule(index=indexes, count=st.integers(1, 3))
    def produces(self, index: int, count: int) -> None:
        records = build_batch([(WALL_MS, None, b"v")] * count)
        data = [PartitionProduceData(index=index, records=records)]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        self.send(frame_of(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics), 12))
        self.ends[index] += count

    @rule(client=clients, back=st.tuples(*[st.integers(0, 2)] * PARTITION_COUNT))
    def wants_all(self, client: int, back: tuple[int, ...]) -> None:
        for index, count in enumerate(back):
            self.want(client, index, max(0, self.ends[index] - count))

    @rule(client=clients, index=indexes, back=st.integers(0, 4))
    def wants(self, client: int, index: int, back: int) -> None:
        self.want(client, index, max(0, self.ends[index] - back))

    @rule(client=clients, index=indexes)
    def wants_no_longer(self, client: int, index: int) -> None:
        self.handlers[client].forget(TopicIdPartition(id_of(TOPIC), index))
        self.wanted[client].pop(index, None)

    @rule(client=clients, back=st.integers(1, 3))
    def reads_again(self, client: int, back: int) -> None:
        """Seek back from the ends, where nothing happened to the partitions meanwhile."""
        self.fetches_until_nothing_is_left(client)
        for index in list(self.wanted[client]):
            self.want(client, index, max(0, self.ends[index] - back))
        self.fetch(client, reads=True)

    @rule(client=clients, index=indexes)
    def hears_of_records(self, client: int, index: int) -> None:
        """Have records produced to a partition that had none left."""
        self.fetches_until_nothing_is_left(client)
        self.produces(index, 1)
        self.fetch(client, reads=True)

    @rule(client=clients)
    def loses_a_response(self, client: int) -> None:
        self.ask(client)
        self.handlers[client].reset()

    @rule(client=clients)
    def repeats_a_request(self, client: int) -> None:
        """A request of a session that is sent again is out of step with it."""
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MIB)
        self.handlers[client].fill(request)
        frame = frame_of(request, FETCH_VERSION)
        first, second = (
            decode(FetchResponse, FETCH_VERSION, self.send(frame)[HEADER_BYTES:]) for _ in "ab"
        )
        if request.session_epoch > 0 and first.session_id:  # 0 if its last partition is gone
            assert second.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.handlers[client].reset()

    @rule(client=clients, reads=st.booleans())
    def fetches(self, client: int, reads: bool) -> None:
        self.fetch(client, reads=reads)

    @rule(client=clients)
    def fetches_until_nothing_is_left(self, client: int) -> None:
        for _ in range(FETCHES):
            self.fetch(client, reads=True)
        assert all(self.ends[at] == offset for at, offset in self.wanted[client].items())
        response, returned = self.ask(client)
        if self.take(client, response) and response.session_id:
            assert not returned, "SettledMeansSilent: an idle partition is returned again"

    def want(self, client: int, index: int, offset: int) -> None:
        self.wanted[client][index] = offset
        self.handlers[client].want(TopicIdPartition(id_of(TOPIC), index), asked(index, offset))

    def fetch(self, client: int, *, reads: bool) -> None:
        """Fetch, check the response against the logs, and continue after its records."""
        response, returned = self.ask(client)
        if not self.take(client, response):
            return
        wanted = self.wanted[client]
        assert returned.keys() <= wanted.keys()
        for index, offset in wanted.items():
            if self.ends[index] > offset:
                found = list(batches(memoryview(returned[index].records)))
                assert found[0][1].base_offset <= offset < found[0][1].end_offset
                assert found[-1][1].end_offset == self.ends[index]
            elif index in returned:
                assert not returned[index].records
                assert returned[index].high_watermark == self.ends[index]
        for index, data in returned.items():
            if reads and data.records:
                self.want(client, index, self.ends[index])

    def ask(self, client: int) -> tuple[FetchResponse, dict[int, Any]]:
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=MIB)
        self.handlers[client].fill(request)
        sent = self.send(frame_of(request, FETCH_VERSION))
        response = decode(FetchResponse, FETCH_VERSION, sent[HEADER_BYTES:])
        parts = [one for topic in response.responses for one in topic.partitions]
        return response, {one.partition_index: one for one in parts}

    def take(self, client: int, response: FetchResponse) -> bool:
        """Return whether the session continues, or a new one was opened or refused a slot."""
        try:
            self.handlers[client].take(response)
        except RefusedError:
            return False
        return True

    def send(self, frame: bytes) -> bytes:
        return self.broker.take(frame, len(frame))

    @invariant()
    def slots_are_bounded_and_partitions_counted(self) -> None:
        sessions = self.sessions._sessions.values()
        assert len(sessions) <= SLOT_COUNT
        assert self.sessions.partition_count == sum(len(one.targets) for one in sessions)

    @invariant()
    def a_session_holds_the_partitions_its_client_sent(self) -> None:
        """The session of a client that sent all its changes holds exactly its wanted partitions."""
        for handler, wanted in zip(self.handlers, self.wanted, strict=True):
            session = self.sessions._sessions.get(handler._session_id)
            is_open = session is not None and session.epoch == handler._epoch
            if is_open and not handler._changed and not handler._forgotten:
                assert session is not None
                held = {one.index: one.fetch_offset for one in session.targets.values()}
                assert held == wanted


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=1_000 if os.environ.get("OTTLA_FAULTS") == "full" else 25,
    stateful_step_count=40,
    deadline=None,
)
