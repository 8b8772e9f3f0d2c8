"""The fast paths of requests charge as the general one does: the same responses, mutes and
rates."""

import gc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.bench.requests import BENCH_CLIENT_ID, frame_of
from ottla.jepsen.fuzz.mini_broker import NOW_MS, TOPIC, WALL_MS, MiniBroker, id_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.limits import MIB
from ottla.model.quotas.quota_limits import CLIENT_ID, USER, ClientEntity, QuotaEntity
from ottla.model.quotas.rates import WindowShape
from ottla.model.run_now import run_now
from ottla.node.network.connection_quotas import ConnectionQuotas
from ottla.node.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.node.quotas.quota_publisher import QuotaPublisher
from ottla.node.quotas.quota_usage import UsageRow, usage_rows
from ottla.storage.disk.slice import FileSlice
from ottla.wire.apis import FETCH, METADATA, OFFSET_COMMIT, PRODUCE
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode
from ottla.wire.flat.flat_commit import FlatCommit
from ottla.wire.flat.flat_produce import FlatProduce
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

OURS: ClientEntity = (QuotaEntity(CLIENT_ID, False, BENCH_CLIENT_ID),)
ANY_CLIENT: ClientEntity = (QuotaEntity(CLIENT_ID, True, ""),)
ANY_USER: ClientEntity = (QuotaEntity(USER, True, ""),)
OTHER: ClientEntity = (QuotaEntity(CLIENT_ID, False, "other"),)
NEVER_REACHED = {
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e9,
}
FETCH_VERSION = 17
HEADER_BYTES = 4 + 4 + 1
"""Of an answer with tagged fields: its length, the correlation id, and none of them."""


def produce(size: int = 100, *, acks: int = -1, index: int = 0) -> bytes:
    data = [PartitionProduceData(index=index, records=build_batch([(WALL_MS, None, b"v" * size)]))]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    return frame_of(ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics), 12)


def fetch(
    offset: int | None = 0,
    *,
    bytes_max: int = MIB,
    bytes_min: int = 1,
    wait_ms: int = 0,
    session: tuple[int, int] = (0, -1),
) -> bytes:
    topics = []
    if offset is not None:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
        topics = [FetchTopic(topic_id=id_of(TOPIC), partitions=[asked])]
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=MIB,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
    )
    return frame_of(request, FETCH_VERSION)


def commit(offset: int) -> bytes:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=rows)]
    return frame_of(OffsetCommitRequest(group_id="g", topics=topics), 9)


def metadata(version: int = 12) -> bytes:
    return frame_of(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), version)


class LimitedBroker(MiniBroker):
    """A broker whose time passes on demand, and in steps while it serves."""

    def __init__(self, *, step_ns: int = 0) -> None:
        super().__init__(frame_bytes_max=MIB)
        self.now_ms = NOW_MS
        self.core.quotas.now_ms = lambda: self.now_ms
        self._ns = 0
        self._step_ns = step_ns
        self.dispatcher.clock.now_ns = self._next_ns
        connections = ConnectionQuotas(WindowShape(), listeners=["PLAINTEXT"], inter_broker="")
        self._publisher = QuotaPublisher(self.core.quotas, connections)
        self._image = self.core.metadata.image
        self.chunk_counts: list[int] = []
        """Number of chunks sent in each turn."""

    def _next_ns(self) -> int:
        self._ns += self._step_ns
        return self._ns

    def serve_in_general(self) -> None:
        """Leave every request to the handlers of decoded ones."""
        for key in (PRODUCE, OFFSET_COMMIT, METADATA):
            route = self.dispatcher._routes[key]
            self.dispatcher.register(key, route.handler, large_handler=route.large_handler)
        api = self.core.data.fetch
        self.dispatcher.register(FETCH, api.handle)

    def set_limits(self, entity: ClientEntity, limits: Mapping[str, float]) -> None:
        """Change the quotas of the metadata."""
        quotas = self._image.client_quotas.set(entity, PersistentMap(limits))
        image = replace(self._image, client_quotas=quotas)
        run_now(self._publisher.publish(MetadataDelta.between(self._image, image), image))
        self._image = image

    def bring(self, data: bytes = b"", *, after_ms: int = 0) -> bytes:
        """Let time pass, send bytes to the broker, and return its output once it is idle."""
        self.now_ms += after_ms
        turn_end, connection = self.dispatcher.turn_end, self._channel.connection
        sent = bytearray()
        arrived = memoryview(bytearray(data))
        has_work = True
        while has_work:
            turn_end.begin()
            self.purgatory.expire(self.now_ms)
            connection.resume(self.now_ms)
            if arrived:
                connection.on_bytes(arrived, self.now_ms)
                arrived = memoryview(b"")
            has_work = bool(turn_end.works)
            turn_end.end(self._errors)
            output = connection.output
            self.chunk_counts.append(len(output.chunks))
            for chunk in output.chunks:
                assert isinstance(chunk, FileSlice | bytes | bytearray | memoryview)
                sent += chunk.read() if isinstance(chunk, FileSlice) else chunk
            connection.on_sent(output.byte_count, self.now_ms)
            has_work |= bool(self._ready) or connection.has_more_to_take_up
            self._ready.clear()
        return bytes(sent)

    @property
    def muted_until_ms(self) -> int | None:
        """Until when the connection is read no further."""
        return self._channel.connection._muted_until_ms

    @property
    def usage(self) -> list[UsageRow]:
        """Quota usage of clients."""
        return usage_rows(self.core.quotas.by_key.items(), self.now_ms, 100)


class BothWays:
    """Two brokers of which one decodes every request."""

    def __init__(self, *, step_ns: int = 0) -> None:
        self.short = LimitedBroker(step_ns=step_ns)
        self.general = LimitedBroker(step_ns=step_ns)
        self.general.serve_in_general()

    def set_limits(self, entity: ClientEntity, limits: Mapping[str, float]) -> None:
        for broker in (self.short, self.general):
            broker.set_limits(entity, limits)

    def bring(self, data: bytes = b"", *, after_ms: int = 0) -> bytes:
        """Have both serve the bytes, hold them to the same, and return the answer."""
        answers, states = [], []
        for broker in (self.short, self.general):
            answers.append(broker.bring(data, after_ms=after_ms))
            connection = broker._channel.connection
            states.append((broker.muted_until_ms, broker.usage, connection.is_closed))
        assert answers[0] == answers[1]
        assert states[0] == states[1]
        assert not self.short.faults
        return answers[0]


def throttle_of(answer: bytes, at: int = HEADER_BYTES) -> int:
    return int.from_bytes(answer[at : at + 4], "big")


sizes = st.sampled_from((0, 100, 3_000, 9_000))
produces = st.builds(
    produce, sizes, acks=st.sampled_from((-1, 1, 0)), index=st.sampled_from((0, 0, 0, 9))
)
fetches = st.builds(
    fetch,
    st.integers(-1, 6),
    bytes_max=st.sampled_from((0, 300, 5_000, MIB)),
    bytes_min=st.sampled_from((0, 1, 4_000)),
    wait_ms=st.sampled_from((0, 500)),
)
session_fetches = st.sampled_from((None, 0, 1, 2, 3))
requests = st.one_of(
    produces,
    fetches,
    session_fetches,
    st.builds(commit, st.integers(0, 9)),
    st.builds(metadata, st.sampled_from((1, 9, 12))),
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "producer_byte_rate": st.sampled_from((50.0, 1_000.0, 1e12)),
        "consumer_byte_rate": st.sampled_from((0.5, 20.0, 50.0, 1_000.0, 1e12)),
        "request_percentage": st.sampled_from((1.0, 1e9)),
    },
)
changes = st.tuples(st.sampled_from((OURS, ANY_CLIENT, ANY_USER, OTHER)), limits)
times = st.sampled_from((0, 0, 1, 20, 999, 1_000, 15_000))


@given(
    first=limits,
    steps=st.lists(
        st.tuples(times, st.one_of(st.lists(requests, max_size=3), changes)), max_size=12
    ),
    step_ns=st.sampled_from((0, 1_000_000, 30_000_000)),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_both_ways_answer_mute_and_count_alike(
    first: Mapping[str, float],
    steps: list[tuple[int, list[bytes | int | None] | tuple[ClientEntity, Mapping[str, float]]]],
    step_ns: int,
) -> None:
    both = BothWays(step_ns=step_ns)
    for size in (100, 3_000, 9_000, 100):
        both.bring(produce(size))
    opened = both.bring(fetch(session=(0, 0)))
    session_id, epoch = decode(FetchResponse, FETCH_VERSION, opened[HEADER_BYTES:]).session_id, 0
    assert session_id
    both.set_limits(OURS, first)
    for after_ms, step in steps:
        if isinstance(step, tuple):
            both.set_limits(*step)
            both.bring(after_ms=after_ms)
            continue
        data = b""
        for request in step:
            if isinstance(request, bytes):
                data += request
            else:
                epoch += 1
                data += fetch(request, session=(session_id, epoch))
        both.bring(data, after_ms=after_ms)
    both.bring(after_ms=100_000)


@pytest.mark.parametrize(
    "limits",
    [NEVER_REACHED, *({key: value} for key, value in NEVER_REACHED.items())],
    ids=["all", *NEVER_REACHED],
)
def test_what_is_within_its_quota_goes_the_short_way(limits: Mapping[str, float]) -> None:
    both = BothWays()
    both.set_limits(OURS, limits)

    dispatcher = both.short.dispatcher
    forms: list[type] = []

    def noted(handler: Handler) -> Handler:
        def note(context: RequestContext, request: Any) -> HandlerResult:
            forms.append(type(request))
            return handler(context, request)

        return note

    for key in (PRODUCE, OFFSET_COMMIT):
        route = dispatcher._routes[key]
        dispatcher.register(key, noted(route.handler), read_flat=route.read_flat)
    both.bring(produce())
    both.bring(produce(acks=1))
    both.bring(commit(3))
    assert forms == [FlatProduce, FlatProduce, FlatCommit]
    for bytes_max in (1, 300, MIB):
        both.bring(fetch(0, bytes_max=bytes_max))
        assert both.short.chunk_counts[-1] == 1
        assert both.general.chunk_counts[-1] > 1


BATCH_BYTES = len(build_batch([(WALL_MS, None, b"v" * 100)]))


@pytest.mark.parametrize("more", range(-3, 4))
@pytest.mark.parametrize("batch_count", (1, 2, 3))
def test_a_bound_at_the_end_of_a_batch_gives_the_same_both_ways(
    batch_count: int, more: int
) -> None:
    """A client with a quota is given whole batches, and what its credit covers."""
    bound = batch_count * BATCH_BYTES + more
    by_size, by_credit = BothWays(), BothWays()
    for _ in range(2):
        by_size.bring(produce())
        by_credit.bring(produce())
    by_size.set_limits(OURS, NEVER_REACHED)
    by_size.bring(fetch(0, bytes_max=bound))
    by_credit.set_limits(OURS, {"consumer_byte_rate": bound / 10})
    for _ in range(3):
        by_credit.bring(fetch(0))


@pytest.mark.parametrize("size", (10, 1_000, 20_000))
def test_an_answer_with_records_tells_of_a_throttle_for_its_time(size: int) -> None:
    both = BothWays(step_ns=110_000_000)
    both.bring(produce(size))
    both.set_limits(OURS, {"request_percentage": 1})
    assert throttle_of(both.bring(fetch(0))) == 1_000
    assert both.short.muted_until_ms == NOW_MS + 1_000


def test_an_answer_that_is_kept_tells_of_the_throttle_and_stays_as_it_was() -> None:
    both = BothWays(step_ns=16_000_000)  # twice a request: its handler, and its encoding
    free = both.bring(metadata())
    both.set_limits(OURS, {"request_percentage": 1})
    found = [both.bring(metadata(), after_ms=1) for _ in range(4)]
    assert found[:3] == [free] * 3
    assert throttle_of(found[3]) == 1_000
    assert (
        found[3][:HEADER_BYTES] + free[HEADER_BYTES : HEADER_BYTES + 4] == free[: HEADER_BYTES + 4]
    )
    assert both.bring(after_ms=60_000) == b""
    assert both.bring(metadata()) == free


def test_a_change_of_a_quota_holds_for_the_next_produce_of_a_connection() -> None:
    both = BothWays()
    free = both.bring(produce())
    throttle_at = len(free) - 5
    assert throttle_of(free, throttle_at) == 0

    both.set_limits(OURS, {"producer_byte_rate": 10})
    assert throttle_of(both.bring(produce()), throttle_at) > 0
    assert both.short.muted_until_ms is not None
    assert both.bring(produce()) == b"", "the connection is muted"
    assert both.bring(after_ms=60_000) != b""

    both.set_limits(OURS, {"producer_byte_rate": 1e12})
    assert throttle_of(both.bring(produce(), after_ms=60_000), throttle_at) == 0
    assert both.short.muted_until_ms is None

    both.set_limits(OURS, {})
    before = both.short.usage
    assert throttle_of(both.bring(produce()), throttle_at) == 0
    assert both.short.usage == before == []


def test_a_change_of_a_quota_holds_for_the_next_fetch_of_a_connection() -> None:
    both = BothWays()
    both.bring(produce(1_000))
    free = both.bring(fetch(0))
    both.set_limits(ANY_USER, {"consumer_byte_rate": 200})
    assert both.bring(fetch(0)) == free
    throttled = both.bring(fetch(0))
    assert throttle_of(throttled) > 0
    assert len(throttled) < 50, "no records are given"
    assert both.short.muted_until_ms == NOW_MS + throttle_of(throttled)

    both.set_limits(ANY_USER, {"consumer_byte_rate": 1e12})
    both.bring(after_ms=throttle_of(throttled))
    assert both.bring(fetch(0)) == free


def test_a_charged_request_leaves_nothing_to_the_collector() -> None:
    """A charge that knew its request's slot, which knows it, was freed by a collection only."""
    both = BothWays()
    both.set_limits(OURS, NEVER_REACHED)
    data = produce() + fetch(0) + commit(1) + metadata()
    both.bring(data)
    gc.collect()
    gc.disable()
    try:
        both.bring(data)
        assert gc.collect() == 0
    finally:
        gc.enable()
