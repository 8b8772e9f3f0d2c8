"""The backward read of the metadata log against a played broker."""

from typing import Any

import pytest

from ottla.insight.facts.changes_driver import (
    REQUESTS_MAX,
    WINDOW_ENTRIES,
    later_changes,
    recent_changes,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.describe_metadata_changes_response import (
    DescribeMetadataChangesResponse,
    MetadataChange,
)


class PlayedLog:
    """A metadata log whose entry at offset N has the timestamp N; every tenth entry is a change."""

    def __init__(self, start: int, end: int, *, pieces: int = 300) -> None:
        self.start, self.end, self.pieces = start, end, pieces
        self.request_count = 0
        self.cluster = self

    async def request(self, request: Any, kind: Any) -> DescribeMetadataChangesResponse:
        self.request_count += 1
        at = {-1: self.end, -2: self.start}.get(request.start_offset, request.start_offset)
        if not self.start <= at <= self.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            return DescribeMetadataChangesResponse(error_code=code, error_message="no")
        until = min(self.end, at + self.pieces)
        return DescribeMetadataChangesResponse(
            error_message=None,
            next_offset=until,
            end_offset=self.end,
            changes=[
                MetadataChange(offset=one, epoch=1, timestamp_ms=one, kind="config", text=f"{one}")
                for one in range(at, until)
                if one % 10 == 0
            ],
        )


async def offsets_since(log: Any, since_ms: int, count_max: int = 1_000) -> tuple[list[int], bool]:
    found = await recent_changes(log, since_ms=since_ms, count_max=count_max)
    return [one.offset for one in found.changes], found.is_complete


async def test_changes_since_a_time_are_returned_newest_first() -> None:
    assert await offsets_since(PlayedLog(0, 2_000), 1_955) == ([1_990, 1_980, 1_970, 1_960], True)


async def test_windows_join_without_a_gap_or_a_repetition() -> None:
    found, is_complete = await offsets_since(PlayedLog(0, 3 * WINDOW_ENTRIES + 7), 400)
    assert found == list(range(1_500, 399, -10))
    assert is_complete


async def test_the_search_ends_at_the_start_of_the_log() -> None:
    assert await offsets_since(PlayedLog(1_970, 2_000), 0) == ([1_990, 1_980, 1_970], True)
    assert await offsets_since(PlayedLog(0, 0), 0) == ([], True)


async def test_older_changes_than_the_maximum_are_reported_as_left_out() -> None:
    assert await offsets_since(PlayedLog(0, 2_000), 0, count_max=2) == ([1_990, 1_980], False)


async def test_a_long_log_costs_a_bounded_number_of_requests() -> None:
    log = PlayedLog(0, 1_000_000)
    found, is_complete = await offsets_since(log, 0, count_max=1_000_000)
    assert found[0] == 999_990
    assert not is_complete
    assert log.request_count <= REQUESTS_MAX + 2


async def test_a_cluster_without_the_request_is_an_error_with_its_code() -> None:
    class OldBroker:
        cluster: Any = None

        async def request(self, request: Any, kind: Any) -> Any:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "no")

    broker: Any = OldBroker()
    broker.cluster = broker
    with pytest.raises(RefusedError) as caught:
        await recent_changes(broker, since_ms=0, count_max=1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("start", "end", "since_ms", "count_max", "request_count"),
    [
        pytest.param(0, 2_000, 1_700, 1_000, 1, id="nothing new"),
        pytest.param(0, 2_250, 1_700, 1_000, 2, id="new entries"),
        pytest.param(0, 2_450, 1_700, 1_000, 3, id="new entries in two pieces"),
        pytest.param(0, 2_250, 2_100, 1_000, 2, id="old changes are dropped"),
        pytest.param(0, 2_250, 1_700, 5, 2, id="more changes than the maximum"),
        pytest.param(0, 2_250, 2_230, 5, 2, id="a list that was cut becomes complete"),
        pytest.param(0, 9_000, 8_900, 1_000, None, id="too many new entries"),
        pytest.param(2_100, 2_250, 1_700, 1_000, None, id="a snapshot has the new entries"),
        pytest.param(0, 900, 0, 1_000, None, id="a log that is shorter than before"),
    ],
)
async def test_only_the_new_entries_are_read_after_the_first_time(
    start: int, end: int, since_ms: int, count_max: int, request_count: int | None
) -> None:
    log: Any = PlayedLog(0, 2_000)
    known = await recent_changes(log, since_ms=min(since_ms, 1_600), count_max=count_max)
    log.start, log.end, log.request_count = start, end, 0

    found = await later_changes(log, known, since_ms=since_ms, count_max=count_max)

    if request_count is not None:
        assert log.request_count == request_count
    assert found == await recent_changes(log, since_ms=since_ms, count_max=count_max)
