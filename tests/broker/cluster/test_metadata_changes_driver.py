"""DescribeMetadataChanges, from a log that grows in virtual time."""

from typing import Any

import trio
from trio.testing import MockClock

from ottla.broker.cluster.metadata_changes_driver import CHANGES_MAX, MetadataChangesApi
from ottla.metadata import records
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.node.quorum.record_batches import batch_of
from ottla.wire.messages.describe_metadata_changes_request import DescribeMetadataChangesRequest


class GrowingLog:
    """A metadata log with one batch, which is applied at some time."""

    def __init__(self, count: int, *, start: int = 0, applied_after_s: float = 0.0) -> None:
        made = [records.config_record(2, "t", f"k{at}", "v") for at in range(count)]
        self._data = batch_of(made, timestamp_ms=5)
        self._count = count
        self._applied_after_s = applied_after_s
        self.start_offset = Offset(start)
        self.image: MetadataImage = EMPTY

    @property
    def applied_end_offset(self) -> Offset:
        is_applied = trio.current_time() >= self._applied_after_s
        return Offset(self._count if is_applied else 0)

    async def wait_applied(self, end_offset: Offset) -> None:
        while self.applied_end_offset < end_offset:
            await trio.sleep(0.1)

    async def read_applied(self, offset: Offset, *, bytes_max: int) -> bytes:
        return self._data if offset < self.applied_end_offset else b""


async def ask(log: GrowingLog, start_offset: int, *, wait_ms: int = 0) -> Any:
    request = DescribeMetadataChangesRequest(start_offset=start_offset, wait_ms=wait_ms)
    context: Any = type("Context", (), {"api_version": 0})()
    return await MetadataChangesApi(log).handle(context, request)


async def test_changes_are_read_from_an_offset_in_pieces(autojump_clock: MockClock) -> None:
    log = GrowingLog(CHANGES_MAX + 20)

    first = await ask(log, -2)
    second = await ask(log, first.next_offset)
    end = await ask(log, -1)

    assert [one.offset for one in first.changes] == list(range(CHANGES_MAX))
    assert first.changes[0].text == "topic t: k0=v"
    assert [one.offset for one in second.changes] == list(range(CHANGES_MAX, CHANGES_MAX + 20))
    assert second.next_offset == second.end_offset == CHANGES_MAX + 20
    assert (end.changes, end.next_offset) == ([], CHANGES_MAX + 20)


async def test_a_request_waits_for_the_next_change(autojump_clock: MockClock) -> None:
    log = GrowingLog(1, applied_after_s=trio.current_time() + 3)

    early = await ask(log, 0, wait_ms=1_000)
    late = await ask(log, 0, wait_ms=1_000_000)

    assert early.changes == []
    assert early.next_offset == 0
    assert len(late.changes) == 1


async def test_an_offset_outside_the_log_is_refused(autojump_clock: MockClock) -> None:
    for offset in (4, 11, 1 << 62):
        answer = await ask(GrowingLog(10, start=5), offset)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert "5 to 10" in answer.error_message
