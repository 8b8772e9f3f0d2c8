"""Instances of reporting clients: registration, refusals with their errors, and expiry."""

from dataclasses import replace
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.telemetry.clients.instances import (
    INSTANCES_MAX,
    INSTANCES_PER_CONNECTION_MAX,
    ClientInstances,
    GetAnswer,
    PushVerdict,
)
from ottla.telemetry.clients.subscriptions import ClientTraits
from tests.search_length import length

NONE = ErrorCode.NONE
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
UNKNOWN = ErrorCode.UNKNOWN_SUBSCRIPTION_ID

INTERVAL_MS = 1_000
BYTES_MAX = 1 << 20
EVERYTHING = {"all": {"metrics": "*", "interval.ms": str(INTERVAL_MS)}}
NEWCOMER = ClientTraits(ZERO_UUID, "shop", "apache-kafka-java", "4.1.0", "10.0.0.7", 40_001)
HOUR_MS = 3_600_000


class Desk:
    """Client instances at one broker, a clock, and what was heard of them."""

    def __init__(self, instances_max: int = 4) -> None:
        self.now_ms = 10_000
        self.stale: list[UUID] = []
        self.crowded_ms: list[int] = []
        self.given_count = 0
        self.instances = ClientInstances(
            fresh_id=self.fresh_id,
            payload_bytes_max=BYTES_MAX,
            instances_max=instances_max,
            on_stale=self.stale.append,
            on_crowded=lambda: self.crowded_ms.append(self.now_ms),
        )
        self.instances.on_subscriptions(EVERYTHING)

    def fresh_id(self) -> UUID:
        self.given_count += 1
        return UUID(int=1_000 + self.given_count)

    def get(self, client: UUID = ZERO_UUID, connection_id: int = 1) -> GetAnswer:
        traits = replace(NEWCOMER, client_instance_id=client)
        return self.instances.get_subscriptions(
            traits, connection_id=connection_id, now_ms=self.now_ms
        )

    def push(
        self,
        client: UUID,
        *,
        subscription_id: int | None = None,
        connection_id: int = 1,
        is_terminating: bool = False,
        codec: int = 4,
        payload_bytes: int = 100,
    ) -> PushVerdict:
        if subscription_id is None:
            known = self.instances.get(client)
            subscription_id = 0 if known is None else known.effective.subscription_id
        return self.instances.push(
            replace(NEWCOMER, client_instance_id=client),
            connection_id=connection_id,
            subscription_id=subscription_id,
            is_terminating=is_terminating,
            codec=codec,
            payload_bytes=payload_bytes,
            now_ms=self.now_ms,
        )

    def joined(self, connection_id: int = 1) -> UUID:
        return self.get(connection_id=connection_id).instance.id


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Who is given an id, and what a Get tells.


def test_a_client_without_an_id_is_given_one_and_keeps_it(desk: Desk) -> None:
    first, second = desk.get(), desk.get(connection_id=2)
    assert (first.error, second.error) == (NONE, NONE)
    assert first.instance.id != second.instance.id
    desk.now_ms += INTERVAL_MS
    again = desk.get(first.instance.id)
    assert again.error is NONE
    assert again.instance is first.instance


def test_an_id_that_kafka_keeps_for_itself_is_no_clients(desk: Desk) -> None:
    assert desk.get(UUID(int=1)).instance.id == UUID(int=1_001)


def test_a_get_tells_what_the_client_is_asked_for(desk: Desk) -> None:
    effective = desk.get().instance.effective
    assert (effective.metrics, effective.interval_ms) == (("*",), INTERVAL_MS)


def test_a_client_that_another_broker_knew_may_push_at_once(desk: Desk) -> None:
    elsewhere = Desk()
    client = UUID(int=77_777)
    subscription_id = elsewhere.get(client).instance.effective.subscription_id
    assert desk.push(client, subscription_id=subscription_id).error is NONE


# The gate, through requests.


def test_a_push_right_after_a_get_is_taken_and_the_next_an_interval_later(desk: Desk) -> None:
    client = desk.joined()
    desk.now_ms += 1
    assert desk.push(client).error is NONE
    desk.now_ms += INTERVAL_MS - 1
    early = desk.push(client)
    assert (early.error, early.throttle_ms) == (THROTTLED, 1)
    desk.now_ms += 1
    assert desk.push(client).error is NONE


def test_an_early_get_is_answered_with_its_remaining_wait(desk: Desk) -> None:
    client = desk.joined()
    desk.now_ms += 300
    early = desk.get(client)
    assert (early.error, early.throttle_ms) == (THROTTLED, 700)


@pytest.mark.parametrize("bad", [{"subscription_id": 1}, {"codec": 5}, {"codec": -1}])
def test_after_an_unknown_subscription_or_codec_a_client_may_ask_at_once_but_only_once(
    desk: Desk, bad: dict[str, int]
) -> None:
    client = desk.joined()
    assert desk.push(client, **bad).error is not NONE  # type: ignore[arg-type]
    desk.now_ms += 1
    assert desk.get(client).error is NONE
    assert desk.get(client).error is THROTTLED


def test_after_a_payload_that_is_too_large_a_client_may_not_ask_at_once(desk: Desk) -> None:
    client = desk.joined()
    assert desk.push(client, payload_bytes=BYTES_MAX + 1).error is ErrorCode.TELEMETRY_TOO_LARGE
    assert desk.get(client).error is THROTTLED


# The order of the checks: a push with every fault gets the first error, and so on down.

FAULTS = [
    ({}, ErrorCode.INVALID_REQUEST),
    ({}, THROTTLED),
    ({"subscription_id": 1}, UNKNOWN),
    ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ({"payload_bytes": BYTES_MAX + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
    ({}, NONE),
]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_the_first_check_that_fails_gives_the_error(first: int) -> None:
    desk = Desk()
    client = desk.joined()
    if first <= 1:
        desk.push(client)  # so that the next one comes too early
    if first == 0:
        desk.push(client, is_terminating=True)
    faults: dict[str, int] = {}
    for at, (fault, _) in enumerate(FAULTS):
        if at >= first:
            faults |= fault
    assert desk.push(client, **faults).error is FAULTS[first][1]  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_of_kafka_is_accepted_and_none_is_one(desk: Desk, codec: int) -> None:
    assert desk.push(desk.joined(), codec=codec).error is NONE


def test_a_payload_may_be_as_large_as_the_setting_says(desk: Desk) -> None:
    assert desk.push(desk.joined(), payload_bytes=BYTES_MAX).error is NONE


@pytest.mark.parametrize("number", [0, 1, 99])
def test_a_push_under_a_reserved_id_is_refused_and_registers_no_client(
    desk: Desk, number: int
) -> None:
    assert desk.push(UUID(int=number)).error is ErrorCode.INVALID_REQUEST
    assert len(desk.instances) == 0


# The last push.


def test_the_last_push_of_a_client_may_come_at_any_time_and_ends_it(desk: Desk) -> None:
    client = desk.joined()
    assert desk.push(client).error is NONE
    assert desk.push(client, is_terminating=True).error is NONE
    for is_terminating in (False, True, False):
        desk.now_ms += 10 * INTERVAL_MS
        refused = desk.push(client, is_terminating=is_terminating)
        assert refused.error is ErrorCode.INVALID_REQUEST


# Every way to refuse a push, by the state that it meets; a refused push ends no client.

REFUSALS: dict[str, tuple[dict[str, int], ErrorCode]] = {
    "an unknown subscription": ({"subscription_id": 1}, UNKNOWN),
    "an unknown codec": ({"codec": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "too many bytes": ({"payload_bytes": BYTES_MAX + 1}, ErrorCode.TELEMETRY_TOO_LARGE),
    "nothing wrong": ({}, NONE),
}

STATES = ("unknown", "subscribed", "pushed", "refused", "ended")


def desk_in(state: str) -> tuple[Desk, UUID]:
    """Return a desk, and the id of a client that is in this state there."""
    desk = Desk()
    if state == "unknown":
        return desk, UUID(int=500)
    client = desk.joined()
    if state == "pushed":
        desk.push(client)
    elif state == "refused":
        desk.push(client, codec=5)
    elif state == "ended":
        desk.push(client, is_terminating=True)
    return desk, client


def expected_of(state: str, name: str, *, is_terminating: bool) -> ErrorCode:
    """Return Kafka's answer: the first of its checks that fails."""
    if state == "ended":
        return ErrorCode.INVALID_REQUEST
    if state in ("pushed", "refused") and not is_terminating:
        return THROTTLED
    if state == "unknown" and name == "nothing wrong":
        return UNKNOWN  # it cannot know the number of a subscription that it never asked for
    return REFUSALS[name][1] if state != "unknown" else UNKNOWN


@pytest.mark.parametrize("is_terminating", [False, True])
@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("state", STATES)
def test_a_push_ends_its_client_only_if_it_is_the_last_and_accepted(
    state: str, name: str, is_terminating: bool
) -> None:
    desk, client = desk_in(state)
    faults, _ = REFUSALS[name]
    if state == "unknown":
        faults = {"subscription_id": 1} | faults
    error = desk.push(client, is_terminating=is_terminating, **faults).error
    assert error is expected_of(state, name, is_terminating=is_terminating)
    is_ended = state == "ended" or (is_terminating and error is NONE)
    known = desk.instances.get(client)
    assert known is not None
    assert known.is_terminating is is_ended
    # The client corrects itself.
    desk.now_ms += INTERVAL_MS
    assert desk.get(client).error is NONE
    for last in (False, True):
        answer = desk.push(client, is_terminating=last).error
        assert answer is (ErrorCode.INVALID_REQUEST if is_ended else NONE)
    assert desk.push(client).error is ErrorCode.INVALID_REQUEST


def test_a_last_push_that_found_no_room_may_be_sent_again(desk: Desk) -> None:
    client = desk.joined()
    accepted = desk.push(client, is_terminating=True).instance
    assert accepted is not None
    assert desk.push(client, is_terminating=True).error is ErrorCode.INVALID_REQUEST
    desk.instances.on_ingested(accepted, THROTTLED)
    assert desk.push(client, is_terminating=True).error is NONE


def test_a_last_push_that_cannot_be_read_is_the_last(desk: Desk) -> None:
    client = desk.joined()
    accepted = desk.push(client, is_terminating=True).instance
    assert accepted is not None
    desk.instances.on_ingested(accepted, ErrorCode.INVALID_RECORD)
    assert desk.push(client, is_terminating=True).error is ErrorCode.INVALID_REQUEST


def test_a_change_of_subscriptions_brings_no_ended_client_back(desk: Desk) -> None:
    client = desk.joined()
    desk.push(client, is_terminating=True)
    desk.instances.on_subscriptions({"all": {"metrics": "org.", "interval.ms": "100"}})
    assert desk.push(client).error is ErrorCode.INVALID_REQUEST


# Subscriptions change.


def test_a_change_is_felt_at_the_next_request_of_a_client(desk: Desk) -> None:
    client = desk.joined()
    assert desk.push(client).error is NONE
    old_id = desk.get(client).instance.effective.subscription_id
    desk.now_ms += 1
    desk.instances.on_subscriptions({"all": {"metrics": "org.a.", "interval.ms": "500"}})
    assert desk.push(client, subscription_id=old_id).error is UNKNOWN
    answer = desk.get(client)
    assert answer.error is NONE
    assert answer.instance.effective[:2] == (("org.a.",), 500)
    assert desk.stale == [client]
    desk.now_ms += 250  # the earliest at which a client's jitter lets it come
    assert desk.push(client).error is NONE


def test_a_change_that_does_not_concern_a_client_opens_its_gate_no_earlier(desk: Desk) -> None:
    client = desk.joined()
    assert desk.push(client).error is NONE
    other = {"other": {"metrics": "x.", "match": "client_id=else"}}
    desk.instances.on_subscriptions(EVERYTHING | other)
    assert desk.push(client).error is THROTTLED
    assert desk.stale == []


def test_a_subscription_that_goes_leaves_nothing_asked_for(desk: Desk) -> None:
    client = desk.joined()
    desk.instances.on_subscriptions({})
    assert desk.get(client).instance.effective[:2] == ((), 300_000)


def test_an_unreadable_subscription_is_logged_and_the_others_apply(desk: Desk) -> None:
    unreadable = desk.instances.on_subscriptions({**EVERYTHING, "bad": {"interval.ms": "soon"}})
    assert unreadable == ["bad"]
    assert desk.get().instance.effective.metrics == ("*",)


def test_a_client_from_another_address_is_matched_again(desk: Desk) -> None:
    here = {"all": {"metrics": "*", "match": "client_source_port=40001"}}
    desk.instances.on_subscriptions(here)
    client = desk.joined()
    moved = replace(NEWCOMER, client_instance_id=client, source_port=50_000)
    answer = desk.instances.get_subscriptions(moved, connection_id=2, now_ms=desk.now_ms)
    assert answer.instance.effective.metrics == ()


# Who is forgotten.


def test_a_client_is_forgotten_with_its_connection(desk: Desk) -> None:
    client, other = desk.joined(1), desk.joined(2)
    desk.instances.on_disconnect(1)
    assert [one.id for one in desk.instances] == [other]
    assert desk.stale == [client]


def test_a_client_that_went_on_by_another_connection_stays(desk: Desk) -> None:
    client = desk.joined(1)
    desk.push(client, connection_id=2)
    desk.instances.on_disconnect(1)
    assert len(desk.instances) == 1
    desk.instances.on_disconnect(2)
    assert len(desk.instances) == 0


def test_a_connection_that_never_asked_may_close(desk: Desk) -> None:
    desk.joined(1)
    desk.instances.on_disconnect(99)
    assert len(desk.instances) == 1


@pytest.mark.parametrize(("interval_ms", "silence_ms"), [(1_000, 60_000), (30_000, 90_000)])
def test_a_client_is_forgotten_after_three_intervals_and_at_least_a_minute_of_silence(
    desk: Desk, interval_ms: int, silence_ms: int
) -> None:
    desk.instances.on_subscriptions({"all": {"metrics": "*", "interval.ms": str(interval_ms)}})
    client = desk.joined()
    desk.now_ms += interval_ms
    desk.push(client)
    desk.instances.expire(desk.now_ms + silence_ms - 1)
    assert len(desk.instances) == 1
    assert desk.instances.next_deadline_ms == desk.now_ms + silence_ms
    desk.instances.expire(desk.now_ms + silence_ms)
    assert len(desk.instances) == 0
    assert desk.stale == [client]
    assert desk.instances.next_deadline_ms is None


def test_of_thousands_that_fall_silent_at_once_some_are_forgotten_at_a_time() -> None:
    desk = Desk(instances_max=1_000)
    for number in range(200):
        desk.joined(number)
    left = []
    while desk.instances.next_deadline_ms is not None:
        desk.instances.expire(desk.now_ms + 60_000)
        left.append(len(desk.instances))
    assert left == [136, 72, 8, 0]


def test_a_shorter_interval_makes_silence_shorter(desk: Desk) -> None:
    desk.instances.on_subscriptions({"all": {"metrics": "*", "interval.ms": str(HOUR_MS)}})
    client = desk.joined()
    desk.instances.on_subscriptions(EVERYTHING)
    desk.get(client)
    desk.instances.expire(desk.now_ms + 60_000)
    assert len(desk.instances) == 0


def test_above_the_bound_the_one_that_was_silent_longest_goes(desk: Desk) -> None:
    clients = [desk.joined(number) for number in range(4)]
    desk.now_ms += INTERVAL_MS
    desk.push(clients[0], connection_id=0)
    desk.joined(9)
    assert desk.stale == [clients[1]]
    assert len(desk.instances) == 4
    assert desk.instances.counts.evicted == 1


def test_kafkas_number_of_clients_is_kept_and_not_one_more() -> None:
    """16,384, features TE10."""
    desk = Desk(instances_max=INSTANCES_MAX)
    first = desk.joined(0)
    for number in range(1, 16_384):
        desk.joined(number)
    assert (len(desk.instances), desk.instances.counts.evicted) == (16_384, 0)
    assert desk.instances.get(first) is not None

    desk.joined(16_384)
    assert (len(desk.instances), desk.instances.counts.evicted) == (16_384, 1)
    assert desk.instances.get(first) is None


def test_the_bound_is_complained_of_at_most_once_in_five_minutes(desk: Desk) -> None:
    for number in range(10):
        desk.joined(number)
        desk.now_ms += 60_000
    assert [second - first for first, second in pairwise(desk.crowded_ms)] == [300_000]


def test_a_connection_that_asks_for_ids_without_end_pushes_out_its_own() -> None:
    desk = Desk(instances_max=10 * INSTANCES_PER_CONNECTION_MAX)
    other = desk.joined(2)
    for _ in range(20 * INSTANCES_PER_CONNECTION_MAX):
        desk.joined(1)
    assert len(desk.instances) == INSTANCES_PER_CONNECTION_MAX + 1
    assert desk.instances.get(other) is not None


# What is counted.


def test_what_became_of_requests_is_counted_for_all_and_for_each(desk: Desk) -> None:
    client = desk.joined()
    accepted = desk.push(client, payload_bytes=700).instance
    assert accepted is not None
    desk.instances.on_ingested(accepted, NONE)
    desk.push(client)
    desk.now_ms += INTERVAL_MS
    desk.push(client, subscription_id=1)
    desk.now_ms += INTERVAL_MS
    desk.push(client, payload_bytes=300)
    desk.instances.on_ingested(accepted, ErrorCode.INVALID_RECORD)
    counts = desk.instances.counts
    assert (counts.accepted, counts.exported, counts.failed) == (2, 1, 1)
    assert (counts.throttled, counts.unknown_subscriptions) == (1, 1)
    assert (accepted.push_count, accepted.push_bytes) == (2, 1_000)
    assert (accepted.export_count, accepted.error_count, accepted.throttle_count) == (1, 1, 1)
    assert accepted.last_error is ErrorCode.INVALID_RECORD
    assert (accepted.last_get_ms, accepted.last_push_ms) == (10_000, 12_000)


class Crowd(RuleBasedStateMachine):
    """Clients that come, move, push, fall silent and go, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(instances_max=5)
        self.where: dict[UUID, int] = {}

    clients = st.integers(200, 208).map(lambda number: UUID(int=number))
    connections = st.integers(0, 4)

    @rule(client=clients, connection_id=connections, is_push=st.booleans())
    def asks(self, client: UUID, connection_id: int, is_push: bool) -> None:
        if is_push:
            self.desk.push(client, connection_id=connection_id)
        else:
            self.desk.get(client, connection_id)
        self.where[client] = connection_id

    @rule(connection_id=connections)
    def closes(self, connection_id: int) -> None:
        self.desk.instances.on_disconnect(connection_id)
        known = {one.id for one in self.desk.instances}
        assert all(at != connection_id or one not in known for one, at in self.where.items())

    @rule(pause_ms=st.sampled_from([1, 1_000, 59_000, 60_000]))
    def waits(self, pause_ms: int) -> None:
        self.desk.now_ms += pause_ms
        self.desk.instances.expire(self.desk.now_ms)
        assert all(one.expires_ms > self.desk.now_ms for one in self.desk.instances)

    @rule(interval_ms=st.sampled_from([100, 1_000, HOUR_MS]))
    def changes(self, interval_ms: int) -> None:
        texts = {"metrics": "*", "interval.ms": str(interval_ms)}
        self.desk.instances.on_subscriptions({"all": texts})

    @invariant()
    def each_client_is_in_its_last_place_and_none_is_lost_unnoticed(self) -> None:
        instances = self.desk.instances
        assert len(instances) <= 5
        for one in instances:
            assert one.connection_id == self.where[one.id]
        gone = set(self.where) - {one.id for one in instances}
        assert gone <= set(self.desk.stale)
        deadline_ms = instances.next_deadline_ms
        assert len(instances) == 0 or (
            deadline_ms is not None and deadline_ms <= min(one.expires_ms for one in instances)
        )


TestCrowd = Crowd.TestCase
TestCrowd.settings = settings(max_examples=length(25, 60), stateful_step_count=40, deadline=None)
