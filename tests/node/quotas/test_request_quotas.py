"""Charges of requests: the throttle time in a response, and the mute of its connection."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.log_events import event_of, fields_of
from ottla.model.log_limiter import LINES_PER_WINDOW_MAX
from ottla.model.quotas.quota_limits import QuotaEntity, limits_of
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.quotas import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
)
from ottla.node.network.dispatch import Peer, RequestContext
from ottla.node.network.loop_clock import LoopClock
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import Answer
from ottla.node.quotas.client_quotas import REPORT_MS, ClientQuotas
from ottla.node.quotas.quota_types import QUOTA_TYPES
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.wire.apis import FETCH, METADATA, PRODUCE, WRITE_TXN_MARKERS
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse

PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="10.0.0.9",
    peer_port=40_000,
    local_host="10.0.0.1",
    local_port=9092,
)
ANY_CLIENT = (QuotaEntity("client-id", True, ""),)
TEST = (QuotaEntity("client-id", False, "test"),)


class HandClock:
    """A clock that the test moves."""

    now_ms = 1_000
    read_count = 0

    def monotonic_ms(self) -> int:
        self.read_count += 1
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Owner:
    """A connection that only notes until when it is muted."""

    def __init__(self) -> None:
        self.muted_until_ms = 0

    now_ns = 1

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        if slot.charge is not None:
            slot.charge.complete(slot, self.now_ns)

    def mute_until(self, deadline_ms: int) -> None:
        self.muted_until_ms = max(self.muted_until_ms, deadline_ms)

    def on_steps(self, slot: ResponseSlot, steps: Answer) -> None:
        raise AssertionError

    def on_answer_failed(self, fault: Exception) -> None:
        raise fault


class QuotaWorld:
    """Requests of one client with the given quotas."""

    def __init__(self, **limits: float) -> None:
        self.clock = HandClock()
        self.loop_ns = 1
        loop_clock = LoopClock()
        loop_clock.now_ns = lambda: self.loop_ns
        self.quotas = RequestQuotas(WindowShape(), self.clock, loop_clock)
        self.quotas.set_quotas({TEST: limits} if limits else {})
        self.owner = Owner()

    @property
    def used_percent(self) -> float:
        """Usage of the client's request quota, over ten windows."""
        usages = self.quotas.request.usages
        return sum(usage.rate.per_second(self.clock.now_ms) for usage in usages.values())

    @property
    def exempt_percent(self) -> float:
        return self.quotas.exempt.per_second(self.clock.now_ms)

    def arrive(
        self, api_key: int, frame_bytes: int = 100, version: int = 9, client_id: str = "test"
    ) -> ResponseSlot:
        header = RequestHeader(api_key, version, client_id, 0)
        context = RequestContext(self.owner, header, 7, self.loop_ns, PEER, self.clock.now_ms)
        self.quotas.charge(context, frame_bytes)
        return context


def test_every_limit_that_clients_may_have_is_one_of_a_broker_or_of_the_controller() -> None:
    assert QUOTA_TYPES.keys() | {CONTROLLER_MUTATION_RATE} == CLIENT_KEYS


def test_without_any_limit_nothing_is_charged() -> None:
    assert not QuotaWorld().quotas.is_active


def test_a_produce_above_its_rate_is_throttled_and_muted() -> None:
    world = QuotaWorld(producer_byte_rate=100)
    slot = world.arrive(PRODUCE, 1_996)
    response = ProduceResponse()

    slot.complete(response)

    assert response.throttle_time_ms == 10_000
    assert world.owner.muted_until_ms == world.clock.now_ms + 10_000


def test_a_client_that_is_throttled_is_logged_once_a_minute_for_each_quota(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = QuotaWorld(producer_byte_rate=1_000, request_percentage=1)
    for _ in range(3):
        slot = world.arrive(PRODUCE, 19_996)
        slot.complete(ProduceResponse())
    assert [(event_of(line), line.levelname, line.getMessage()) for line in caplog.records] == [
        (
            "client.throttled",
            "INFO",
            "client test is throttled for 10000 ms: it sent more than 1,000 bytes a second, "
            "its producer_byte_rate",
        )
    ]
    assert fields_of(caplog.records[0]) == {
        "user": "",
        "client_id": "test",
        "quota": "producer_byte_rate",
        "limit": 1_000,
        "throttle_ms": 10_000,
    }

    slot = world.arrive(METADATA)
    world.loop_ns += 500_000_000
    slot.complete(MetadataResponse())
    assert "its requests took more than 1 % of the time" in caplog.records[1].getMessage()

    world.clock.now_ms += REPORT_MS
    world.arrive(PRODUCE, 999_996)
    assert len(caplog.records) == 3


def test_clients_that_are_throttled_under_ever_new_names_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = QuotaWorld()
    world.quotas.set_quotas({ANY_CLIENT: {"producer_byte_rate": 1_000}})
    for number in range(100):
        header = RequestHeader(PRODUCE, 9, f"client-{number}", 0)
        context = RequestContext(world.owner, header, 7, 1, PEER, world.clock.now_ms)
        world.quotas.charge(context, 99_996)
    assert len(caplog.records) == LINES_PER_WINDOW_MAX


def test_a_produce_without_an_answer_is_muted_all_the_same() -> None:
    world = QuotaWorld(producer_byte_rate=100)

    world.arrive(PRODUCE, 1_996).complete_silently()

    assert world.owner.muted_until_ms == world.clock.now_ms + 10_000


def test_the_longer_throttle_is_returned() -> None:
    world = QuotaWorld(producer_byte_rate=100)
    response = ProduceResponse(throttle_time_ms=20_000)

    world.arrive(PRODUCE, 1_996).complete(response)

    assert response.throttle_time_ms == 20_000


def test_time_of_the_loop_is_charged_in_percent_of_a_second() -> None:
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(METADATA)
    # 110 ms of 10 s are 1.1 percent; a tenth above the limit takes a tenth of the time again.
    world.loop_ns += 110_000_000
    response = MetadataResponse()

    slot.complete(response)

    assert response.throttle_time_ms == 1_000
    assert world.owner.muted_until_ms == world.clock.now_ms + 1_000


def test_a_request_is_throttled_for_one_window_at_most() -> None:
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(METADATA)
    world.loop_ns += 5_000_000_000
    response = MetadataResponse()

    slot.complete(response)

    assert response.throttle_time_ms == 1_000


def test_what_a_request_waits_for_costs_its_client_nothing() -> None:
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(FETCH, version=12)
    slot.handled_ns = slot.started_ns
    world.loop_ns += 5_000_000_000
    response = FetchResponse()

    slot.complete(response)

    assert response.throttle_time_ms == 0


def test_steps_of_an_answer_are_charged() -> None:
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(METADATA)
    slot.handled_ns = slot.started_ns
    assert slot.charge is not None
    slot.charge.used_ns += 110_000_000
    response = MetadataResponse()

    slot.complete(response)

    assert response.throttle_time_ms == 1_000


def test_what_brokers_send_each_other_is_exempt() -> None:
    world = QuotaWorld(request_percentage=1)

    slot = world.arrive(WRITE_TXN_MARKERS, version=1)
    world.owner.now_ns = world.loop_ns = world.loop_ns + 500_000_000
    slot.complete(WriteTxnMarkersResponse())

    assert world.owner.muted_until_ms == 0
    assert world.exempt_percent == 5
    assert not world.used_percent


def test_a_produce_without_an_answer_is_exempt_from_the_request_quota() -> None:
    world = QuotaWorld(request_percentage=1)

    slot = world.arrive(PRODUCE)
    world.owner.now_ns = world.loop_ns = world.loop_ns + 500_000_000
    slot.complete_silently()

    assert world.owner.muted_until_ms == 0
    assert world.exempt_percent == 5


def test_a_fetch_of_a_follower_is_exempt() -> None:
    world = QuotaWorld(request_percentage=1, consumer_byte_rate=1)
    slot = world.arrive(FETCH, version=12)
    assert slot.charge is not None
    slot.charge.is_exempt = True
    assert slot.charge.may_give(1_000_000, slot)
    world.owner.now_ns = world.loop_ns = world.loop_ns + 500_000_000
    slot.complete(FetchResponse())

    assert world.owner.muted_until_ms == 0
    assert world.exempt_percent == 5
    assert not world.used_percent


def test_time_of_encoding_is_charged_with_the_next_request() -> None:
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(METADATA)
    world.owner.now_ns = world.loop_ns + 500_000_000  # encoding, after the charge is settled
    slot.complete(MetadataResponse())
    assert world.owner.muted_until_ms == 0
    world.loop_ns = world.owner.now_ns

    response = MetadataResponse()
    world.arrive(METADATA).complete(response)

    assert world.used_percent == 5
    assert response.throttle_time_ms == 1_000


def test_time_of_writing_is_charged_with_the_next_request() -> None:
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(METADATA)
    slot.complete(MetadataResponse())
    assert slot.charge is not None
    slot.charge.note_written(500_000_000)

    response = MetadataResponse()
    world.arrive(METADATA).complete(response)

    assert world.used_percent == 5
    assert response.throttle_time_ms == 1_000


def test_time_of_threads_is_charged_and_not_what_they_wait_for() -> None:
    """A thread may encode while the loop serves others."""
    world = QuotaWorld(request_percentage=1)
    slot = world.arrive(METADATA)
    assert slot.charge is not None
    slot.charge.note_thread_time(100_000_000)  # decoding
    slot.finish_answer(MetadataResponse())
    world.loop_ns += 3_000_000_000
    slot.charge.note_thread_time(400_000_000)  # encoding
    world.owner.now_ns = world.loop_ns
    slot.complete_encoded(MetadataResponse(), [b""])

    world.arrive(METADATA).complete(MetadataResponse())

    assert world.used_percent == 5


@pytest.mark.parametrize("record_bytes", (0, 1_000))
def test_a_fetch_is_charged_the_whole_frame_of_its_answer(record_bytes: int) -> None:
    world = QuotaWorld(consumer_byte_rate=10_000)
    slot = world.arrive(FETCH, version=12)
    assert slot.charge is not None
    slot.charge.fetch_bytes_max(record_bytes)
    assert slot.charge.may_give(record_bytes, slot)
    slot.complete_frame([bytes(record_bytes + 500)])

    following = world.arrive(FETCH, version=12)
    assert following.charge is not None
    following.charge.fetch_bytes_max(1)
    assert following.charge.may_give(0, following)

    assert world.quotas.fetch.usages["", "test"].rate.per_second(1_000) * 10 == record_bytes + 500


def test_answers_without_records_use_up_the_credit_of_a_consumer() -> None:
    world = QuotaWorld(consumer_byte_rate=100)
    for _ in range(3):
        slot = world.arrive(FETCH, version=12)
        assert slot.charge is not None
        slot.charge.fetch_bytes_max(1)
        assert slot.charge.may_give(0, slot)
        slot.complete_frame([bytes(500)])
    assert world.owner.muted_until_ms == 0

    slot = world.arrive(FETCH, version=12)
    assert slot.charge is not None
    slot.charge.fetch_bytes_max(1)
    assert not slot.charge.may_give(0, slot)
    assert world.owner.muted_until_ms == world.clock.now_ms + 5_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3_000),  # ms since the fetch before
            st.integers(0, 5_000),  # the client's limit of bytes
            st.integers(0, 3_000),  # bytes of records
            st.sampled_from([0, 0, 1, 700]),  # ms that the fetch waits
            st.integers(0, 800),  # the other bytes of the frame
        ),
        max_size=20,
    )
)
def test_one_lookup_of_a_fetch_has_the_answers_and_charges_of_two(
    fetches: list[tuple[int, int, int, int, int]],
) -> None:
    """The same quota is asked directly, before and after each read."""
    world = QuotaWorld(consumer_byte_rate=300)
    clock = world.clock
    asked_twice = ClientQuotas(WindowShape())
    asked_twice.set_limits(limits_of({TEST: {CONSUMER_BYTE_RATE: 300}}, CONSUMER_BYTE_RATE))
    for elapsed_ms, bytes_max, byte_count, waited_ms, other_bytes in fetches:
        clock.now_ms += elapsed_ms
        slot = world.arrive(FETCH, version=12)
        assert slot.charge is not None
        found = asked_twice.find("ANONYMOUS", "test", clock.now_ms)
        assert found is not None
        most = asked_twice.most_at_once(found, bytes_max, clock.now_ms)
        assert slot.charge.fetch_bytes_max(bytes_max) == most
        if waited_ms:
            slot.handled_ns = 1
            clock.now_ms += waited_ms
        offer = asked_twice.offer("ANONYMOUS", "test", byte_count, clock.now_ms)
        assert slot.charge.may_give(byte_count, slot) == offer.is_given
        response = FetchResponse()
        slot.finish_answer(response)
        assert response.throttle_time_ms == offer.delay_ms
        slot.complete_frame([bytes(byte_count + other_bytes)])
        if offer.is_given:
            found[1].late += other_bytes
        usage = world.quotas.fetch.usages["", "test"]
        expected = found[1]
        assert (usage.bucket.tokens, usage.late) == (expected.bucket.tokens, expected.late)
        assert usage.rate.per_second(clock.now_ms) == expected.rate.per_second(clock.now_ms)


@pytest.mark.parametrize("client_id", ("test", "unlimited"))
def test_no_clock_is_read_for_a_fetch_unless_it_waits(client_id: str) -> None:
    world = QuotaWorld(consumer_byte_rate=300)
    for handled_ns, read_count in ((0, 0), (1, 1)):
        slot = world.arrive(FETCH, version=12, client_id=client_id)
        assert slot.charge is not None
        before = world.clock.read_count
        slot.charge.fetch_bytes_max(100)
        slot.handled_ns = handled_ns
        assert slot.charge.may_give(100, slot)
        assert world.clock.read_count - before == read_count


def test_requests_of_which_no_quota_counts_anything_are_not_charged() -> None:
    produce = QuotaWorld(producer_byte_rate=100)
    assert produce.arrive(PRODUCE).charge is not None
    assert produce.arrive(FETCH, version=12).charge is None
    assert produce.arrive(METADATA).charge is None

    fetch = QuotaWorld(consumer_byte_rate=100)
    assert fetch.arrive(PRODUCE).charge is None
    assert fetch.arrive(FETCH, version=12).charge is not None
    assert fetch.arrive(METADATA).charge is None

    times = QuotaWorld(request_percentage=1)
    for api_key in (PRODUCE, FETCH, METADATA):
        assert times.arrive(api_key).charge is not None


def test_only_what_changed_is_put_in_force_and_the_rest_stays() -> None:
    world = QuotaWorld(producer_byte_rate=100)
    other = (QuotaEntity("client-id", False, "other"),)

    world.quotas.set_quotas({other: {"producer_byte_rate": 7.0}}, [other])

    produce = world.quotas.produce
    for client_id, limit in (("other", 7), ("test", 100)):
        found = produce.find("ANONYMOUS", client_id, 0)
        assert found is not None
        assert found[0].limit == limit
    world.quotas.set_quotas({}, [other, TEST])
    assert not world.quotas.is_active


def test_requests_without_a_quota_are_counted_only_while_an_operator_watches() -> None:
    world = QuotaWorld()
    assert not world.quotas.is_active
    world.quotas.watch(1_000)
    assert world.quotas.is_active

    slot = world.arrive(PRODUCE, 100)
    world.owner.now_ns = 51
    slot.complete(ProduceResponse())
    replication = world.arrive(WRITE_TXN_MARKERS, 100, version=1)
    replication.complete(WriteTxnMarkersResponse())

    ((names, counts),) = world.quotas.traffic.counts.items()
    assert names == ("ANONYMOUS", "test")
    assert (counts.request_count, counts.bytes_in, counts.used_ns) == (1, 104, 50)
    assert counts.bytes_out > 0
    world.clock.now_ms += 1_000
    assert world.arrive(PRODUCE, 100).charge is None
    assert not world.quotas.is_active
    assert not world.quotas.traffic.counts


def test_the_end_of_a_watch_leaves_quotas_in_force() -> None:
    world = QuotaWorld(producer_byte_rate=1_000.0)
    world.quotas.watch(1_000)
    world.clock.now_ms += 1_000
    assert world.arrive(PRODUCE, 100).charge is not None
    assert world.quotas.is_active
    assert not world.quotas.traffic.is_watched
