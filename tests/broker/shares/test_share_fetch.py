"""ShareFetch and ShareAcknowledge at one broker: sessions, waits, locks, quotas and failover."""

from typing import Any

import pytest

from ottla.broker.metrics.share_metrics import share_families
from ottla.broker.shares import share_fetch
from ottla.broker.shares.led_share import LOCKS_COST, Stage
from ottla.broker.shares.share_figures import ReadTimes
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.node.network import purgatory
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.telemetry.metrics.instruments import Summary
from ottla.wire.batch import batches
from ottla.wire.batch_builder import ControlType, build_end_transaction_marker
from ottla.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse
from tests.broker.shares.conftest import (
    ShareBench,
    ack_codes,
    acquired,
    code_of,
    parts,
)

T = ("t", 0)
KINDS = ("Gap", "Accept", "Release", "Reject", "Renew")
ACCEPT, RELEASE, REJECT, RENEW = [1], [2], [3], [4]


def base_offsets(part: PartitionData) -> list[int]:
    assert isinstance(part.records, bytes | memoryview)
    return [header.base_offset for _, header in batches(part.records)]


async def test_a_member_acquires_records_and_acknowledges_them_with_its_next_fetch(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a", b"b", b"c")
    first = bench.fetch(T, epoch=0)
    assert acquired(first) == [(0, 2, 1)]
    (part,) = parts(first)
    assert base_offsets(part) == [0]
    assert first.response(ShareFetchResponse).acquisition_lock_timeout_ms == 30_000
    bench.append(partition, b"d")
    second = bench.fetch(epoch=1, acks={T: [(0, 2, ACCEPT)]})
    assert acquired(second) == [(3, 3, 1)]
    assert parts(second)[0].acknowledge_error_code == 0
    assert bench.persister.states[bench.key(partition)].start_offset == 3


async def test_two_members_never_own_the_same_record(bench: ShareBench) -> None:
    partition = await bench.add()
    for _ in range(4):
        bench.append(partition, b"a", b"b")
    assert acquired(bench.fetch(T, epoch=0, max_records=2)) == [(0, 1, 1)]
    assert acquired(bench.fetch(T, epoch=0, member_id="n")) == [(2, 7, 1)]
    assert acquired(bench.fetch(epoch=1)) == []


async def test_many_bytes_leave_as_a_slice_without_the_batches_of_others(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    for _ in range(3):
        bench.append(partition, b"a" * 5_000)
    bench.fetch(T, epoch=0, max_records=1)
    call = bench.fetch(T, epoch=0, member_id="n", max_records=1)
    assert any(type(chunk).__name__ == "FileSlice" for chunk in call.slot.chunks)
    (part,) = parts(call)
    assert base_offsets(part) == [1]


async def test_the_record_limit_of_version_two_is_exact(bench: ShareBench) -> None:
    partition = await bench.add()
    bench.append(partition, *[b"v"] * 10)
    assert acquired(bench.fetch(T, epoch=0, max_records=4, share_acquire_mode=1)) == [(0, 3, 1)]
    assert acquired(bench.fetch(epoch=1, max_records=4, share_acquire_mode=1)) == [(4, 7, 1)]


async def test_a_fetch_waits_for_an_append(bench: ShareBench) -> None:
    partition = await bench.add()
    call = bench.fetch(T, epoch=0, max_wait_ms=500)
    assert not call.is_completed
    bench.append(partition, b"a")
    assert acquired(call) == [(0, 0, 1)]


async def test_a_fetch_waits_for_a_released_record(bench: ShareBench) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    other = bench.fetch(T, epoch=0, member_id="n", max_wait_ms=500)
    assert not other.is_completed
    assert ack_codes(bench.acknowledge({T: [(0, 0, RELEASE)]}, epoch=1)) == [0]
    assert acquired(other) == [(0, 0, 2)]


async def test_a_fetch_waits_for_the_end_of_a_lock_and_the_late_ack_is_refused(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    other = bench.fetch(T, epoch=0, member_id="n", max_wait_ms=60_000)
    bench.world.pass_time(29_999)
    assert not other.is_completed
    bench.world.pass_time(1)
    assert acquired(other) == [(0, 0, 2)]
    late = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=1)
    assert ack_codes(late) == [ErrorCode.INVALID_RECORD_STATE]


async def test_a_fetch_without_records_is_answered_at_its_timeout(bench: ShareBench) -> None:
    await bench.add()
    call = bench.fetch(T, epoch=0, max_wait_ms=500)
    bench.world.pass_time(500)
    assert acquired(call) == []
    assert len(parts(call)) == 1  # The first response of a session has all partitions.


@pytest.mark.interpreted_only("counts calls of a method")
async def test_a_partition_without_records_is_not_read_for_each_waiting_member(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One appended record suffices for one of many members that wait for it."""
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    waiting = [bench.fetch(T, epoch=0, member_id=one, max_wait_ms=500) for one in ("n", "o")]
    read, original = [], share_fetch.ShareFetch.attempt

    def attempt(fetch: share_fetch.ShareFetch, *, is_last: bool) -> bool:
        read.append(fetch.key.member_id)
        return original(fetch, is_last=is_last)

    monkeypatch.setattr(share_fetch.ShareFetch, "attempt", attempt)
    assert ack_codes(bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=1)) == [0]
    assert read == []
    bench.append(partition, b"b")
    assert acquired(waiting[0]) == [(1, 1, 1)]
    assert read == ["n"]
    bench.append(partition, b"c")
    assert acquired(waiting[1]) == [(2, 2, 1)]


async def test_min_bytes_are_waited_for(bench: ShareBench) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    call = bench.fetch(T, epoch=0, min_bytes=150, max_wait_ms=500)
    assert not call.is_completed
    bench.append(partition, b"b")
    bench.append(partition, b"c")
    assert acquired(call) == [(0, 2, 1)]


async def test_a_response_waits_for_the_durability_of_its_acknowledgements(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.persister.is_held = True
    call = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=1)
    assert not call.is_completed
    bench.persister.release()
    assert ack_codes(call) == [0]


@pytest.mark.parametrize(
    ("stored", "answered"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_errors_of_the_persister_reach_the_acknowledger(
    bench: ShareBench, stored: ErrorCode, answered: ErrorCode
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.persister.failures.append(stored)
    assert ack_codes(bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=1)) == [answered]
    is_kept = stored is ErrorCode.NOT_COORDINATOR
    assert len(bench.apis.delivery.shares) == is_kept
    again = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=2)
    assert ack_codes(again) == [0 if is_kept else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_reset_while_a_member_is_frozen_takes_effect_at_the_next_session(
    bench: ShareBench,
) -> None:
    """Kafka 4.4 continues with the cached state, and the new consumer gets nothing."""
    partition = await bench.add()
    bench.append(partition, b"a", b"b")
    bench.fetch(T, epoch=0, member_id="frozen")
    bench.acknowledge({T: [(0, 1, ACCEPT)]}, epoch=1, member_id="frozen")
    bench.initialize(partition, start_offset=0, state_epoch=2)
    assert acquired(bench.fetch(T, epoch=0, member_id="n")) == [(0, 1, 1)]


async def test_a_byte_quota_below_a_batch_costs_no_delivery(bench: ShareBench) -> None:
    """Kafka 4.4 counts a delivery for each throttled response, and archives the records unseen."""
    partition = await bench.add()
    bench.settings = ShareGroupSettings(delivery_count_limit=2)
    bench.append(partition, b"a" * 5_000)
    charge = RefusingCharge()
    for epoch in range(5):
        call = bench.world.call(78, 2)
        call.slot.charge = charge
        bench.world.call = lambda key, version, call=call: call
        assert acquired(bench.fetch(T, epoch=epoch)) == []
        del bench.world.call
    assert charge.offered == [bench_bytes(partition)] * 5
    assert acquired(bench.fetch(epoch=5)) == [(0, 0, 1)]


class RefusingCharge:
    """A quota that allows no records."""

    throttle_ms = 0

    def __init__(self) -> None:
        self.offered: list[int] = []

    def fetch_bytes_max(self, bytes_max: int) -> int:
        return bytes_max

    def may_give(self, byte_count: int, slot: Any) -> bool:
        self.offered.append(byte_count)
        return False

    def settle(self, slot: Any) -> int:
        return 0

    def complete(self, slot: Any, now_ns: int) -> None:
        pass


def bench_bytes(partition: Any) -> int:
    size: int = partition.log.size_bytes
    return size


# ---- sessions


async def test_a_session_continues_with_the_next_epoch_only(bench: ShareBench) -> None:
    await bench.add()
    assert code_of(bench.fetch(T, epoch=1)) == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code_of(bench.fetch(T, epoch=0)) == 0
    assert code_of(bench.fetch(epoch=2)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code_of(bench.fetch(epoch=1)) == 0
    assert code_of(bench.fetch(epoch=1)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH


async def test_an_acknowledgement_opens_no_session(bench: ShareBench) -> None:
    await bench.add()
    answer = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=0)
    code = answer.response(ShareAcknowledgeResponse).error_code
    assert code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    opening = bench.fetch(epoch=0, acks={T: [(0, 0, ACCEPT)]})
    assert code_of(opening) == ErrorCode.INVALID_REQUEST


async def test_the_end_of_a_session_releases_its_records_after_its_acknowledgements(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a", b"b", b"c")
    bench.fetch(T, epoch=0)
    bench.fetch(T, epoch=0, member_id="n")
    assert ack_codes(bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=-1)) == [0]
    assert acquired(bench.fetch(epoch=1, member_id="n")) == [(1, 2, 2)]
    assert code_of(bench.fetch(epoch=2)) == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_closed_connection_releases_records_and_the_last_one_the_memory(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.apis.delivery.on_closed(bench.world.peer)
    assert len(bench.apis.delivery.sessions) == 0
    assert len(bench.apis.delivery.shares) == 0
    assert acquired(bench.fetch(T, epoch=0)) == [(0, 0, 2)]


async def test_memory_is_kept_until_the_released_records_are_stored(bench: ShareBench) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.persister.is_held = True
    bench.apis.delivery.on_closed(bench.world.peer)
    assert len(bench.apis.delivery.shares) == 1
    bench.persister.release()
    assert len(bench.apis.delivery.shares) == 0


async def test_one_session_too_many_is_refused_after_its_wait(bench: ShareBench) -> None:
    await bench.add()
    for member in "abc":
        assert code_of(bench.fetch(T, epoch=0, member_id=member)) == 0
    refused = bench.fetch(T, epoch=0, max_wait_ms=500)
    assert not refused.is_completed
    bench.world.pass_time(500)
    assert code_of(refused) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert code_of(bench.fetch(T, epoch=0, member_id="a")) == 0


async def test_forgotten_partitions_are_not_read_and_their_records_stay_acquired(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.append(partition, b"b")
    assert acquired(bench.fetch(epoch=1, forgotten=(T,))) == []
    assert ack_codes(bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=2)) == [0]


async def test_partitions_take_turns_under_a_byte_limit(bench: ShareBench) -> None:
    for index in range(3):
        partition = await bench.add(index=index)
        for _ in range(4):
            bench.append(partition, b"a" * 1_000)
    names = [("t", index) for index in range(3)]
    seen = []
    for epoch in range(3):
        call = bench.fetch(*names if epoch == 0 else (), epoch=epoch, max_bytes=10, max_records=1)
        seen += [part.partition_index for part in parts(call) if part.acquired_records]
    assert sorted(seen) == [0, 1, 2]


# ---- refusals


async def test_a_cluster_without_share_groups_refuses(bench: ShareBench) -> None:
    bench.is_enabled = False
    assert code_of(bench.fetch(T, epoch=0)) == ErrorCode.UNSUPPORTED_VERSION


async def test_unknown_and_foreign_partitions(bench: ShareBench) -> None:
    await bench.add("led")
    await bench.add("foreign", replicas=(2,), leader=2)
    call = bench.fetch(("foreign", 0), ("led", 0), ("led", 7), ("none", 0), epoch=0)
    response = call.response(ShareFetchResponse)
    found = {
        (topic.topic_id, part.partition_index): part.error_code
        for topic in response.responses
        for part in topic.partitions
    }
    assert found == {
        (bench.topic_id("foreign"), 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (bench.topic_id("led"), 0): 0,
        (bench.topic_id("led"), 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (bench.topic_id("none"), 0): ErrorCode.UNKNOWN_TOPIC_ID,
    }
    (hinted,) = (
        part.current_leader
        for topic in response.responses
        for part in topic.partitions
        if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert (hinted.leader_id, hinted.leader_epoch) == (2, 3)
    assert [node.host for node in response.node_endpoints] == ["host2"]


async def test_a_topic_that_the_client_may_not_read(bench: ShareBench, authorizer: Any) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.world.authorization.use(authorizer)
    authorizer.allow("READ GROUP g")
    (part,) = parts(bench.fetch(T, epoch=0))
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not part.records
    answer = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=1)
    assert ack_codes(answer) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    authorizer.allow("READ TOPIC t")
    assert acquired(bench.fetch(epoch=2)) == [(0, 0, 1)]


@pytest.mark.parametrize(
    ("ranges", "is_renewal"),
    [
        ([(3, 2, ACCEPT)], False),
        ([(0, 2, ACCEPT), (1, 3, ACCEPT)], False),
        ([(0, 0, [])], False),
        ([(0, 2, [1, 1])], False),
        ([(0, 0, [5])], False),
        ([(0, 0, RENEW)], False),
        ([(0, 99, ACCEPT)], False),
        ([(0, (1 << 63) - 1, ACCEPT)], False),
    ],
)
async def test_malformed_acknowledgements(
    bench: ShareBench, ranges: list[tuple[int, int, list[int]]], is_renewal: bool
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a", b"b", b"c", b"d")
    bench.fetch(T, epoch=0)
    answer = bench.acknowledge({T: ranges}, epoch=1, is_renew_ack=is_renewal)
    assert ack_codes(answer) == [ErrorCode.INVALID_REQUEST]


async def test_a_renewal_fetches_nothing(bench: ShareBench) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.append(partition, b"b")
    wrong = bench.fetch(epoch=1, acks={T: [(0, 0, RENEW)]}, is_renew_ack=True)
    assert code_of(wrong) == ErrorCode.INVALID_REQUEST
    bench.world.pass_time(20_000)
    zero: dict[str, Any] = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    renewed = bench.fetch(epoch=1, acks={T: [(0, 0, RENEW)]}, is_renew_ack=True, **zero)
    assert acquired(renewed) == []
    bench.world.pass_time(20_000)
    assert ack_codes(bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=2)) == [0]


# ---- loading and leadership


async def test_a_fetch_waits_until_the_state_is_loaded(bench: ShareBench) -> None:
    partition = await bench.add(start_offset=1)
    bench.append(partition, b"a", b"b")
    bench.persister.is_held = True
    call = bench.fetch(T, epoch=0, max_wait_ms=500)
    assert not call.is_completed
    bench.persister.release()
    assert acquired(call) == [(1, 1, 1)]


async def test_a_failed_load_is_answered_and_the_next_fetch_loads_again(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.persister.failures.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (part,) = parts(bench.fetch(T, epoch=0))
    assert part.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert acquired(bench.fetch(epoch=1)) == [(0, 0, 1)]


@pytest.mark.parametrize(("reset", "start"), [("earliest", 0), ("latest", 2)])
async def test_the_start_offset_of_a_new_group_is_stored_before_its_first_record(
    bench: ShareBench, reset: str, start: int
) -> None:
    """Kafka stores it with the first acknowledgement, so that `latest` may skip records."""
    bench.settings = ShareGroupSettings(offset_reset=reset)
    partition = await bench.add(start_offset=-1)
    bench.append(partition, b"a", b"b")
    bench.fetch(T, epoch=0)
    assert bench.persister.states[bench.key(partition)].start_offset == start
    bench.append(partition, b"c")
    bench.apis.delivery.on_closed(bench.world.peer)
    (first, *_) = acquired(bench.fetch(T, epoch=0))
    assert first[0] == start


async def test_the_start_offset_by_duration(bench: ShareBench) -> None:
    bench.settings = ShareGroupSettings(offset_reset="by_duration:PT0S")
    partition = await bench.add(start_offset=-1)
    bench.append(partition, b"a")
    bench.world.clock.now_ms += 1_000
    assert acquired(bench.fetch(T, epoch=0)) == []
    bench.append(partition, b"b")
    assert acquired(bench.fetch(epoch=1)) == [(1, 1, 1)]


async def test_a_deposed_leader_drops_its_share_partitions(bench: ShareBench) -> None:
    partition = await bench.add(replicas=(1, 2))
    bench.fetch(T, epoch=0)
    waiting = bench.fetch(epoch=1, max_wait_ms=500)
    state = bench.world.state(replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1)
    partition.apply(state, partition.config, bench.world.clock.now_ms)
    (part,) = parts(waiting)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(bench.apis.delivery.shares) == 0
    answer = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=2)
    assert ack_codes(answer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_acknowledgements_in_flight_fail_when_the_leader_changes(bench: ShareBench) -> None:
    partition = await bench.add(replicas=(1,))
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.persister.is_held = True
    call = bench.acknowledge({T: [(0, 0, ACCEPT)]}, epoch=1)
    state = bench.world.state(leader_epoch=4, partition_epoch=1)
    partition.apply(state, partition.config, bench.world.clock.now_ms)
    assert ack_codes(call) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    bench.persister.release()


async def test_records_below_the_log_start_are_passed(bench: ShareBench) -> None:
    partition = await bench.add()
    for _ in range(3):
        bench.append(partition, b"a")
    await partition.log.delete_records_before(Offset(2))
    assert acquired(bench.fetch(T, epoch=0)) == [(2, 2, 1)]
    (led,) = bench.apis.delivery.shares
    assert led.stage is Stage.READY
    assert led.share.window.start_offset == 2


async def test_an_abandoned_fetch_acquires_nothing(bench: ShareBench) -> None:
    partition = await bench.add()
    call = bench.fetch(T, epoch=0, max_wait_ms=500)
    call.slot.abandon()
    bench.apis.delivery.on_closed(bench.world.peer)
    bench.append(partition, b"a")
    assert acquired(bench.fetch(T, epoch=0)) == [(0, 0, 1)]


async def test_committed_readers_never_get_aborted_records(bench: ShareBench) -> None:
    bench.settings = ShareGroupSettings(isolation_level="read_committed")
    partition = await bench.add()
    kinds: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    for sequence, values in ((0, (b"aborted", b"aborted")), (2, (b"aborted",))):
        transactional = bench.world.batch(*values, base_sequence=sequence, **kinds)
        append_batch(bench, partition, transactional, sequence)
    bench.append(partition, b"plain")
    assert acquired(bench.fetch(T, epoch=0)) == []  # The last stable offset is 0.
    end_transaction(bench, partition, is_committed=False)
    assert acquired(bench.fetch(epoch=1)) == [(3, 3, 1)]
    committed = bench.world.batch(b"committed", base_sequence=3, **kinds)
    append_batch(bench, partition, committed, 3)
    end_transaction(bench, partition, is_committed=True)
    assert acquired(bench.fetch(epoch=2)) == [(5, 5, 1)]
    (led,) = bench.apis.delivery.shares
    assert led.share.window.start_offset == 3


async def test_bytes_outside_the_page_cache_are_awaited(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await bench.add()
    bench.append(partition, b"a" * 5_000)
    file = partition.log.segments[-1].file

    def not_cached(position: int, size: int) -> bytes:
        raise NotCachedError(file, position, size)

    with monkeypatch.context() as patch:
        patch.setattr(type(file), "read_cached", lambda self, *where: not_cached(*where))
        call = bench.fetch(T, epoch=0)
        assert not call.is_completed
    (_, done) = bench.world.ranges_due.pop()
    done(None)
    assert acquired(call) == [(0, 0, 1)]


def append_batch(bench: ShareBench, partition: Any, records: memoryview, sequence: int) -> None:
    now_ms = bench.world.clock.wall_ms()
    guard = partition.log.begin_verification(
        7, epoch=0, sequence=sequence, is_bumping=False, now_ms=now_ms
    )
    partition.log.append_as_leader(
        records, leader_epoch=partition.leader_epoch, now_ms=now_ms, guard=guard
    )
    partition.advance_high_watermark(bench.world.clock.now_ms)


def end_transaction(bench: ShareBench, partition: Any, *, is_committed: bool) -> None:
    marker = build_end_transaction_marker(
        ControlType.COMMIT if is_committed else ControlType.ABORT,
        timestamp_ms=bench.world.clock.wall_ms(),
        producer_id=ProducerId(7),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
    )
    partition.append_of_coordinator(
        marker, now_ms=bench.world.clock.wall_ms(), mono_ms=bench.world.clock.now_ms
    )


async def test_requests_locks_and_sessions_are_measured(bench: ShareBench) -> None:
    partition = await bench.add()
    bench.append(partition, b"a", b"b", b"c")
    bench.fetch(T, epoch=0)
    bench.acknowledge({T: [(0, 1, [1, 3])]}, epoch=1)
    bench.acknowledge({T: [(0, 99, ACCEPT)]}, epoch=2)
    found = {one.name: list(one.samples) for one in share_families(bench.apis.delivery)}
    prefix = "kafka_server_"
    values = {name.removeprefix(prefix).lower(): samples for name, samples in found.items()}
    assert values["brokertopicmetrics_totalsharefetchrequests_total"] == [((), 1)]
    assert values["brokertopicmetrics_totalshareacknowledgementrequests_total"] == [((), 2)]
    assert values["brokertopicmetrics_failedshareacknowledgementrequests_total"] == [((), 1)]
    acks = [((kind,), count) for kind, count in zip(KINDS, (0, 1, 0, 1, 0), strict=True)]
    assert values["sharegroupmetrics_recordacknowledgements_total"] == acks
    assert values["sharesessioncache_sharesessionscount"] == [((), 1)]
    labels = ("g", "t", "0")
    assert values["sharepartitionmetrics_inflightmessagecount"] == [(labels, 1)]
    batches = values["sharepartitionmetrics_inflightbatchmessagecount"]
    assert batches == [(labels, Summary(1, 3, ()))]
    assert values["sharepartitionmetrics_fetchlocktimems"] == [(labels, Summary(1, 0, ()))]
    assert values["sharepartitionmetrics_fetchlockratio"] == [(labels, Summary(1, 100, ()))]
    assert values["sharegroupmetrics_requesttopicpartitionsfetchratio"] == [(("g",), 100)]
    waiting = bench.fetch(epoch=3, max_wait_ms=500)
    bench.world.clock.now_ms += 40
    bench.append(partition, b"d")
    assert acquired(waiting) == [(3, 3, 1)]
    assert bench.apis.delivery.figures.by_group["g"].acquisition_ms == 40
    bench.world.pass_time(30_000)
    ended = {one.name.lower(): list(one.samples) for one in share_families(bench.apis.delivery)}
    lock_ends = "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total"
    assert ended[lock_ends] == [(labels, 2)]
    acquisitions = ended["kafka_server_sharegroupmetrics_topicpartitionsacquiretimems"]
    assert acquisitions == [(("g",), Summary(2, 40, ()))]
    bench.apis.delivery.on_closed(bench.world.peer)
    assert not bench.apis.delivery.figures.by_group


def test_time_of_reading_is_a_percentage_of_the_time_since_the_read_before() -> None:
    """As `recordFetchLockRatioMetric` of Kafka 4.4 computes it."""
    times, percents = ReadTimes(), []
    for begun_ms, ended_ms in ((50, 53), (62, 63), (67, 67), (68, 72), (72, 72)):
        before = times.percent_sum
        times.note(begun_ms, ended_ms)
        percents.append(times.percent_sum - before)
    assert percents == [100, 10, 25, 80, 100]
    assert (times.count, times.sum_ms) == (5, 8)


async def test_a_share_partition_that_loads_when_its_last_session_ends_is_dropped(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    bench.persister.is_held = True
    bench.fetch(T, epoch=0, max_wait_ms=500)
    bench.apis.delivery.on_closed(bench.world.peer)
    assert len(bench.apis.delivery.shares) == 0
    bench.persister.release()
    bench.persister.is_held = False
    bench.append(partition, b"a")
    assert acquired(bench.fetch(T, epoch=0)) == [(0, 0, 1)]
    bench.persister.is_held = True
    bench.fetch(T, epoch=0, member_id="n", max_wait_ms=500)  # Compares the state.
    bench.apis.delivery.on_closed(bench.world.peer)
    bench.persister.release()
    assert len(bench.apis.delivery.shares) == 0


async def test_a_session_has_a_bounded_number_of_partitions(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.add()
    monkeypatch.setattr(share_fetch, "SESSION_PARTITIONS_MAX", 2)
    names = [("t", index) for index in range(3)]
    assert code_of(bench.fetch(*names, epoch=0)) == ErrorCode.INVALID_REQUEST
    assert code_of(bench.fetch(*names[:2], epoch=0)) == 0


async def test_a_session_of_very_many_partitions_reads_all_of_them_within_a_few_requests(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_fetch, "PARTITIONS_READ_MAX", 4)
    names = [(f"t{index}", 0) for index in range(10)]
    for name, _ in names:
        bench.append(await bench.add(name), b"a")
    found = acquired(bench.fetch(*names, epoch=0))
    for epoch in range(1, 4):
        found += acquired(bench.fetch(epoch=epoch))
    assert found == [(0, 0, 1)] * 10


@pytest.mark.interpreted_only("sets a constant")
async def test_an_iteration_of_the_event_loop_ends_the_locks_of_few_share_partitions(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purgatory, "COST_PER_TURN", 3 * LOCKS_COST)
    names = [(f"t{index}", 0) for index in range(7)]
    for name, _ in names:
        bench.append(await bench.add(name), b"a")
    bench.fetch(*names, epoch=0)
    shares = [led.share for led in bench.apis.delivery.shares]
    bench.world.clock.now_ms += 30_000
    ended = []
    for _ in range(3):
        bench.world.purgatory.expire(bench.world.clock.now_ms)
        ended.append(sum(share.lock_end_count for share in shares))
    assert ended == [3, 6, 7]
