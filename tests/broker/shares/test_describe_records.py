"""DescribeShareRecords: the records in flight, with their members, locks and deliveries."""

from typing import Any

import pytest

from ottla.broker.shares import describe_records
from ottla.broker.shares.delivery_window import DeliveryState, Span
from ottla.model.errors import ErrorCode
from ottla.wire.apis import DESCRIBE_SHARE_RECORDS
from ottla.wire.messages.describe_share_records_request import DescribeShareRecordsRequest
from ottla.wire.messages.describe_share_records_response import DescribeShareRecordsResponse
from tests.broker.shares.conftest import ShareBench
from tests.broker.shares.test_ordered_fetch import RELEASE, T

ACCEPT, REJECT = [1], [3]


def ask(bench: ShareBench, **changes: Any) -> DescribeShareRecordsResponse:
    call = bench.world.call(DESCRIBE_SHARE_RECORDS, 0)
    values = {"group_id": "g", "topic_name": "t", "range_count_max": 100, **changes}
    bench.world.run(bench.apis.records.handle, call, DescribeShareRecordsRequest(**values))
    answer: DescribeShareRecordsResponse = call.response(DescribeShareRecordsResponse)
    return answer


def rows(answer: DescribeShareRecordsResponse) -> list[tuple[int, int, int, int, str]]:
    assert answer.error_code == ErrorCode.NONE
    return [
        (one.first_offset, one.last_offset, one.state, one.delivery_count, one.member_id)
        for one in answer.ranges
    ]


async def in_flight(bench: ShareBench) -> Any:
    """Let two members acquire records 0 to 1 and 2 to 3; the second releases record 3."""
    partition = await bench.add()
    bench.append(partition, *[b"v"] * 6)
    bench.fetch(T, epoch=0, max_records=2, share_acquire_mode=1)
    bench.fetch(T, epoch=0, member_id="n", max_records=2, share_acquire_mode=1)
    bench.fetch(epoch=1, member_id="n", max_records=0, acks={T: [(3, 3, RELEASE)]})
    return partition


async def test_a_record_in_flight_has_its_member_the_end_of_its_lock_and_its_deliveries(
    bench: ShareBench,
) -> None:
    await in_flight(bench)
    answer = ask(bench)
    assert rows(answer) == [(0, 1, 1, 1, "m"), (2, 2, 1, 1, "n")]
    lock_end_ms = bench.world.clock.wall_ms() + 30_000
    assert {one.lock_end_ms for one in answer.ranges} == {lock_end_ms}
    assert answer.next_offset == -1


async def test_released_records_are_shown_if_asked_for(bench: ShareBench) -> None:
    await in_flight(bench)
    answer = ask(bench, has_waiting=True)
    assert rows(answer)[2:] == [(3, 3, 0, 1, "")]
    assert answer.ranges[2].lock_end_ms == -1


async def test_a_change_that_is_not_durable_is_marked(bench: ShareBench) -> None:
    await in_flight(bench)
    bench.persister.is_held = True
    bench.fetch(epoch=1, max_records=0, acks={T: [(0, 0, ACCEPT)]})
    found = ask(bench).ranges
    assert [(one.first_offset, one.state, one.is_being_stored) for one in found] == [
        (0, DeliveryState.ACKNOWLEDGED, True),
        (1, DeliveryState.ACQUIRED, False),
        (2, DeliveryState.ACQUIRED, False),
    ]


async def test_pages_follow_each_other_without_gaps(bench: ShareBench) -> None:
    await in_flight(bench)
    first = ask(bench, range_count_max=1)
    assert (rows(first), first.next_offset) == ([(0, 1, 1, 1, "m")], 2)
    second = ask(bench, range_count_max=1, start_offset=2)
    assert rows(second) == [(2, 2, 1, 1, "n")]
    assert rows(ask(bench, start_offset=1)) == [(1, 1, 1, 1, "m"), (2, 2, 1, 1, "n")]
    assert rows(ask(bench, start_offset=100)) == []


async def test_a_request_looks_at_a_bounded_number_of_spans(
    bench: ShareBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = await in_flight(bench)
    window = bench.apis.delivery.shares.get(bench.key(partition)).share.window  # type: ignore[union-attr]  # loaded
    for offset in range(4, 40):
        window.append(Span(offset, offset, DeliveryState.AVAILABLE, offset))
    monkeypatch.setattr(describe_records, "SPANS_MAX", 10)
    seen, offset = [], 0
    while offset >= 0:
        answer = ask(bench, start_offset=offset)
        seen += rows(answer)
        assert len(answer.ranges) <= 10
        offset = answer.next_offset
    assert seen == [(0, 1, 1, 1, "m"), (2, 2, 1, 1, "n")]


async def test_bad_requests_are_refused(bench: ShareBench) -> None:
    await in_flight(bench)
    assert ask(bench, group_id="").error_code == ErrorCode.INVALID_REQUEST
    assert ask(bench, start_offset=-1).error_code == ErrorCode.INVALID_REQUEST
    assert ask(bench, range_count_max=0).error_code == ErrorCode.INVALID_REQUEST
    unknown = ask(bench, partition_index=-1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    bench.is_enabled = False
    assert ask(bench).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_group_that_nothing_fetches_has_no_records_in_flight(bench: ShareBench) -> None:
    await in_flight(bench)
    assert rows(ask(bench, group_id="other")) == []
