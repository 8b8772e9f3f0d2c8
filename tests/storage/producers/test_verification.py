"""Conditions for the first batch of a transaction in a log, and for the markers that end it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log
from ottla.storage.producers import verification
from ottla.storage.producers.verification import VerificationGuard
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.storage.log.workbench import NOW_MS, Workbench, append

PRODUCER = 7
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
NOT_VERIFIED = ErrorCode.INVALID_TXN_STATE


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    bench = Workbench(RealDisk(), str(tmp_path / "orders-2"))
    yield await bench.open(LogConfig(producer_id_expiration_ms=1_000))
    bench.let_go()


def begin(
    log: Log, *, epoch: int = 0, sequence: int = 0, is_bumping: bool = False, now_ms: int = NOW_MS
) -> VerificationGuard | None:
    return log.begin_verification(
        PRODUCER, epoch=epoch, sequence=sequence, is_bumping=is_bumping, now_ms=now_ms
    )


def send(
    log: Log,
    guard: VerificationGuard | None,
    *,
    epoch: int = 0,
    sequence: int = 0,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    is_transactional: bool = True,
) -> AppendInfo:
    batch = build_batch(
        [(NOW_MS, None, b"v")],
        producer_id=ProducerId(PRODUCER),
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return append(log, batch, guard=guard, origin=origin)


def end(
    log: Log, *, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0, is_abort: bool = True
) -> None:
    marker = build_end_transaction_marker(
        ControlType.ABORT if is_abort else ControlType.COMMIT,
        timestamp_ms=NOW_MS,
        producer_id=ProducerId(PRODUCER),
        producer_epoch=epoch,
        coordinator_epoch=Epoch(coordinator_epoch),
    )
    origin = AppendOrigin.COORDINATOR
    append(log, marker, guard=None, origin=origin, transaction_version=version)


def refusal_of(log: Log, *args: object, **kwargs: object) -> ErrorCode:
    end_offset = log.end_offset
    with pytest.raises(RefusedError) as refused:
        send(log, *args, **kwargs)  # type: ignore[arg-type]
    assert log.end_offset == end_offset
    return refused.value.code


async def test_the_first_batch_of_a_transaction_needs_the_guard_given_out_for_it(log: Log) -> None:
    assert refusal_of(log, None) is NOT_VERIFIED
    guard = begin(log)
    assert guard is not None
    assert begin(log) is guard
    assert refusal_of(log, VerificationGuard()) is NOT_VERIFIED
    assert refusal_of(log, None) is NOT_VERIFIED
    assert send(log, guard).base_offset == 0


async def test_later_batches_of_an_open_transaction_need_no_guard(log: Log) -> None:
    send(log, begin(log))
    assert begin(log, sequence=1) is None
    assert send(log, None, sequence=1).base_offset == 1


async def test_a_coordinator_s_batch_needs_its_guard_and_no_sequence(log: Log) -> None:
    origin = AppendOrigin.COORDINATOR
    assert refusal_of(log, None, sequence=-1, origin=origin) is NOT_VERIFIED
    assert send(log, begin(log, sequence=-1), sequence=-1, origin=origin).base_offset == 0


async def test_an_answer_that_a_marker_overtook_lets_nothing_in(log: Log) -> None:
    stale = begin(log)
    end(log)
    assert refusal_of(log, stale) is NOT_VERIFIED
    fresh = begin(log)
    assert fresh is not stale
    assert refusal_of(log, stale) is NOT_VERIFIED
    assert send(log, fresh).base_offset == 1


async def test_the_marker_before_a_transaction_of_a_raised_epoch_leaves_its_guard(log: Log) -> None:
    send(log, begin(log, epoch=4, is_bumping=True), epoch=4)
    guard = begin(log, epoch=5, is_bumping=True)  # the marker of the last one is on its way
    end(log, epoch=5, version=2)
    assert send(log, guard, epoch=5).base_offset == 2


async def test_a_marker_of_a_later_epoch_takes_the_guard_back(log: Log) -> None:
    guard = begin(log, epoch=5, is_bumping=True)
    end(log, epoch=6, version=2)
    assert refusal_of(log, guard, epoch=5) is FENCED
    assert refusal_of(log, guard, epoch=6) is NOT_VERIFIED


async def test_an_old_epoch_gets_no_guard(log: Log) -> None:
    send(log, begin(log, epoch=4), epoch=4)
    with pytest.raises(RefusedError) as refused:
        begin(log, epoch=3)
    assert refused.value.code is FENCED


async def test_a_retried_first_batch_needs_no_guard(log: Log) -> None:
    send(log, begin(log))
    end(log)
    assert send(log, None).is_duplicate


async def test_a_batch_does_not_overtake_an_earlier_one_that_was_verified(log: Log) -> None:
    guard = begin(log, sequence=5)
    assert begin(log, sequence=2) is guard
    assert refusal_of(log, guard, sequence=5) is OUT_OF_ORDER
    assert send(log, guard, sequence=2).base_offset == 0


async def test_an_unknown_producer_of_raised_epochs_begins_at_zero(log: Log) -> None:
    guard = begin(log, sequence=3, is_bumping=True)
    assert refusal_of(log, guard, sequence=3) is OUT_OF_ORDER
    assert begin(log, sequence=0, is_bumping=True) is guard
    assert send(log, guard, sequence=0).base_offset == 0


async def test_a_higher_epoch_takes_the_verification_over(log: Log) -> None:
    guard = begin(log, epoch=1, sequence=0)
    assert begin(log, epoch=2, sequence=4) is guard
    assert begin(log, epoch=1, sequence=0) is guard
    assert send(log, guard, epoch=2, sequence=4).base_offset == 0


async def test_a_batch_outside_of_the_open_transaction_is_refused(log: Log) -> None:
    send(log, begin(log))
    assert refusal_of(log, None, sequence=1, is_transactional=False) is NOT_VERIFIED


@pytest.mark.interpreted_only("sets a constant")
async def test_guards_that_are_never_used_expire_and_are_bounded(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = begin(log)
    log.expire_producers(NOW_MS + 999)
    assert begin(log) is guard
    log.expire_producers(NOW_MS + 1_000)
    assert begin(log) is not guard
    monkeypatch.setattr(verification, "VERIFICATIONS_MAX", 2)
    guard = begin(log)
    for producer_id in (8, 9):
        log.begin_verification(producer_id, epoch=0, sequence=0, is_bumping=False, now_ms=NOW_MS)
    assert refusal_of(log, guard) is NOT_VERIFIED


async def test_a_truncation_leaves_the_guards_of_who_waits(log: Log) -> None:
    append(log, build_batch([(NOW_MS, None, b"cut off")]))
    guard = begin(log)
    await log.truncate_to(Offset(0))
    assert send(log, guard).base_offset == 0


# ---- the epochs of markers


@dataclass(frozen=True)
class MarkerCase:
    """A producer at `epoch`, in a transaction or not, and the marker that arrives."""

    epoch: int
    is_open: bool
    marker_epoch: int
    version: int
    code: ErrorCode | None
    coordinator_epoch: int = 5


MARKERS = {
    "v1: the epoch of its transaction": MarkerCase(4, True, 4, 0, None),
    "v1: a fence's epoch": MarkerCase(4, True, 5, 1, None),
    "v1: an old epoch": MarkerCase(4, True, 3, 0, FENCED),
    "v1: sent again": MarkerCase(4, False, 4, 1, None),
    "v2: a raised epoch": MarkerCase(4, True, 5, 2, None),
    "v2: the epoch of an open transaction": MarkerCase(4, True, 4, 2, FENCED),
    "v2: sent again with nothing open": MarkerCase(4, False, 4, 2, None),
    "v2: an old epoch": MarkerCase(4, False, 3, 2, FENCED),
    "v2: the last epoch there is": MarkerCase(32_767, True, 32_767, 2, None),
    "an earlier coordinator": MarkerCase(
        4, True, 5, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED, coordinator_epoch=4
    ),
}


@pytest.mark.parametrize("name", MARKERS)
async def test_a_marker_s_epoch_is_held_against_its_transaction(log: Log, name: str) -> None:
    case = MARKERS[name]
    send(log, begin(log, epoch=case.epoch), epoch=case.epoch)
    end(log, epoch=case.epoch, coordinator_epoch=5)
    if case.is_open:
        send(log, begin(log, epoch=case.epoch, sequence=1), epoch=case.epoch, sequence=1)
    before = log.end_offset

    def arrive() -> None:
        end(
            log,
            epoch=case.marker_epoch,
            coordinator_epoch=case.coordinator_epoch,
            version=case.version,
        )

    if case.code is None:
        arrive()
        assert log.end_offset == before + 1
        assert log.active_producers[PRODUCER].epoch == case.marker_epoch
        assert log.active_producers[PRODUCER].txn_first_offset == -1
    else:
        with pytest.raises(RefusedError) as refused:
            arrive()
        assert refused.value.code is case.code
        assert log.end_offset == before
        assert (log.active_producers[PRODUCER].txn_first_offset >= 0) is case.is_open


async def test_the_epoch_after_a_raising_marker_begins_at_zero(log: Log) -> None:
    send(log, begin(log, is_bumping=True))
    end(log, epoch=1, version=2)
    guard = begin(log, epoch=1, sequence=1, is_bumping=True)
    assert refusal_of(log, guard, epoch=1, sequence=1) is OUT_OF_ORDER
    begin(log, epoch=1, sequence=0, is_bumping=True)
    assert send(log, guard, epoch=1, sequence=0).base_offset == 2


async def test_a_transaction_is_late_that_had_no_batch_for_long(log: Log) -> None:
    assert not log.has_late_transaction(NOW_MS + 1)
    send(log, begin(log))
    assert not log.has_late_transaction(NOW_MS)
    assert log.has_late_transaction(NOW_MS + 1)
    end(log)
    assert not log.has_late_transaction(NOW_MS + 1)
