"""Effects of each duty on a followed log and on its partition."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.follower_duties import DiskDuty, perform_duty
from ottla.broker.replicas.follower_fetch import (
    Flush,
    LeaderLacksRecordsError,
    RaiseStart,
    Truncate,
    TruncateFully,
)
from ottla.model.errors import CorruptDataError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.run_now import run_now
from ottla.model.unexpected_errors import UnexpectedErrors

NOW_MS = 7


class FrozenClock:
    """Time that stands."""

    def monotonic_ms(self) -> int:
        return NOW_MS

    wall_ms = monotonic_ms


class NotedLog:
    """A log that records its changes; it may fail."""

    log_start_offset = Offset(10)
    high_watermark = Offset(5)
    end_offset = Offset(300)
    last_epoch = Epoch(4)
    hole_offset: Offset | None = None
    directory = "/data/t-0"

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._error = error

    async def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self._error is not None:
            raise self._error

    async def flush(self) -> None:
        await self._note("flush")

    async def truncate_to(self, offset: Offset) -> None:
        await self._note("truncate", offset)

    async def truncate_fully_and_start_at(self, offset: Offset) -> None:
        await self._note("begin", offset)

    async def delete_records_before(self, offset: Offset) -> None:
        await self._note("delete", offset)


class FollowedPartition:
    """A partition that is followed."""

    name = "t-0"
    leader_epoch = Epoch(5)

    def __init__(self, unclean_leader_epoch: int = 0) -> None:
        self.partition = SimpleNamespace(
            topic="t", unclean_leader_epoch=Epoch(unclean_leader_epoch)
        )


class NotedCore:
    """A core that records the calls for a partition."""

    leader_id = NodeId(1)

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def done(self, followed: object) -> None:
        self.calls.append(("done",))

    def mark_failed(self, followed: object, error: Exception, now_ms: int) -> None:
        self.calls.append(("set aside", error, now_ms))


def carried_out(
    duty: DiskDuty, log: NotedLog, *, unclean_leader_epoch: int = 0
) -> tuple[list[Any], dict[str, int]]:
    """Carry out a duty; return the calls of the core and the unexpected errors."""
    core: Any = NotedCore()
    followed: Any = FollowedPartition(unclean_leader_epoch)
    any_log: Any = log
    errors = UnexpectedErrors()
    run_now(perform_duty(core, followed, any_log, duty, clock=FrozenClock(), errors=errors))
    return core.calls, dict(errors.counts)


@pytest.mark.parametrize(
    ("duty", "calls"),
    [
        (Flush(), [("flush",)]),
        (Truncate(Offset(5)), [("truncate", 5)]),
        (TruncateFully(Offset(5)), [("begin", 5)]),
        (RaiseStart(Offset(11)), [("delete", 11)]),
        (RaiseStart(Offset(10)), []),
    ],
)
def test_a_partition_is_asked_for_again_when_its_duty_is_done(
    duty: DiskDuty, calls: list[tuple[object, ...]]
) -> None:
    log = NotedLog()
    assert carried_out(duty, log) == ([("done",)], {})
    assert log.calls == calls


@pytest.mark.parametrize(
    "error", [RefusedError(ErrorCode.KAFKA_STORAGE_ERROR), CorruptDataError("a segment")]
)
def test_a_partition_whose_log_refuses_is_set_aside(error: OttlaError) -> None:
    calls, counts = carried_out(Flush(), NotedLog(error))
    assert calls == [("set aside", error, NOW_MS)]
    assert counts == {}


@pytest.mark.parametrize("duty", [Truncate(Offset(4)), TruncateFully(Offset(0))])
def test_committed_records_are_not_dropped_for_a_leader_that_was_elected_cleanly(
    duty: DiskDuty,
) -> None:
    log = NotedLog()
    ((what, error, _),), counts = carried_out(duty, log)

    assert (what, type(error), log.calls, counts) == ("set aside", LeaderLacksRecordsError, [], {})
    assert "high watermark is 5" in error.message
    assert "ottla topic elect --unclean t" in error.message


@pytest.mark.parametrize("duty", [Truncate(Offset(4)), TruncateFully(Offset(0))])
def test_committed_records_are_dropped_after_an_unclean_election_with_an_error_in_the_log(
    duty: DiskDuty, caplog: pytest.LogCaptureFixture
) -> None:
    log = NotedLog()

    calls, _ = carried_out(duty, log, unclean_leader_epoch=5)

    assert calls == [("done",)]
    assert len(log.calls) == 1
    (record,) = [one for one in caplog.records if one.name == "ottla.broker.replicas"]
    assert record.levelname == "ERROR"
    assert "high watermark 5" in record.getMessage()


@pytest.mark.parametrize("duty", [Truncate(Offset(3)), TruncateFully(Offset(3))])
def test_what_is_behind_a_hole_is_dropped_for_any_leader(
    duty: DiskDuty, caplog: pytest.LogCaptureFixture
) -> None:
    log = NotedLog()
    log.hole_offset = Offset(3)

    calls, _ = carried_out(duty, log)

    assert calls == [("done",)]
    assert len(log.calls) == 1
    (record,) = [one for one in caplog.records if one.name == "ottla.broker.replicas"]
    assert record.levelname == "ERROR"


def test_what_is_below_a_hole_is_not_dropped() -> None:
    log = NotedLog()
    log.hole_offset = Offset(3)
    calls, _ = carried_out(Truncate(Offset(2)), log)
    assert calls[0][0] == "set aside"


def test_a_log_that_agrees_with_the_last_unclean_election_is_not_cut_either() -> None:
    calls, _ = carried_out(Truncate(Offset(4)), NotedLog(), unclean_leader_epoch=4)

    assert calls[0][0] == "set aside"


def test_a_bug_in_a_duty_sets_its_partition_aside_and_is_counted() -> None:
    bug = ValueError("a bug of ours")
    calls, counts = carried_out(Flush(), NotedLog(bug))
    assert calls == [("set aside", bug, NOW_MS)]
    assert counts == {"partition": 1}
