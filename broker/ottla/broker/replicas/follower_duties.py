"""Carries out what follows from a leader's answer and takes a disk, and the edge of its partition.

The process's fetchers run duties side by side, the walks of the world at once; what a duty does to
a log, and what becomes of a partition whose log refuses or fails, is the same.  Pure but for the
log.

Invariant CommittedIsNotCut: a leader that was elected cleanly holds all that was committed.  One
that lacks records below our high watermark has lost them, and our copies may be the last: the
partition is not followed until its operator decides.  After an unclean election the records may go.
"""

import logging

from ottla.broker.replicas.follower_fetch import (
    LEADER_LACKS_RECORDS,
    BeginAnew,
    Flush,
    Followed,
    FollowerFetch,
    LeaderLacksRecordsError,
    RaiseStart,
    Truncate,
)
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import Offset
from ottla.model.log_events import event
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log import Log

logger = logging.getLogger("ottla.broker.replicas")

DiskDuty = Flush | Truncate | BeginAnew | RaiseStart
"""Duties that need nothing further from the leader."""


async def carry_out(
    core: FollowerFetch,
    followed: Followed,
    log: Log,
    duty: DiskDuty,
    *,
    clock: Clock,
    errors: UnexpectedErrors,
) -> None:
    """Carry out a duty; a partition whose log refuses or fails is set aside."""
    try:
        _check(core, followed, log, duty)
        await _change(log, duty)
    except OttlaError as error:
        core.set_aside(followed, error, clock.monotonic_ms())
    except Exception as error:
        errors.note("partition", followed.name, error)
        core.set_aside(followed, error, clock.monotonic_ms())
    else:
        core.done(followed)


def contradiction_of(followed: Followed, log: Log, duty: DiskDuty) -> Offset | None:
    """Return our high watermark if a duty contradicts it, None if the log may be changed so.

    A log that ends in the epoch of the last unclean election, or later, agrees with its outcome:
    what is below its high watermark was committed since.  What is behind a hole is dropped to be
    fetched again.
    """
    if not isinstance(duty, Truncate | BeginAnew) or duty.offset >= log.high_watermark:
        return None
    if log.hole_offset is not None and duty.offset >= log.hole_offset:
        return None
    is_decided = log.last_epoch < followed.partition.unclean_leader_epoch
    return None if is_decided else log.high_watermark


def _check(core: FollowerFetch, followed: Followed, log: Log, duty: DiskDuty) -> None:
    """Log a cut.  Raises LeaderLacksRecordsError if it would drop committed records."""
    if not isinstance(duty, Truncate | BeginAnew):
        return
    leader, name = core.leader_id, followed.name
    if contradiction_of(followed, log, duty) is not None:
        raise LeaderLacksRecordsError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{LEADER_LACKS_RECORDS}: this replica's high watermark is "
            f"{log.high_watermark}, and broker {leader} has the same records up to "
            f"{min(duty.offset, log.high_watermark)} only, in epoch {followed.leader_epoch}; they "
            f"are not dropped. To keep them, stop broker {leader} and run 'ottla topic elect "
            f"--unclean {followed.partition.topic}'; to give them up, stop this broker and remove "
            f"{log.directory}",
        )
    is_committed = duty.offset < log.high_watermark
    if isinstance(duty, Truncate):
        logger.log(
            logging.ERROR if is_committed else logging.INFO,
            "%s is cut back from %s to %s, high watermark %s: there it parts from broker %s%s",
            name,
            log.end_offset,
            duty.offset,
            log.high_watermark,
            leader,
            _reason_of_cut(followed, log) if is_committed else "",
            extra=event(
                "replica.truncated",
                partition=name,
                from_offset=log.end_offset,
                to_offset=duty.offset,
                high_watermark=log.high_watermark,
                leader=leader,
            ),
        )
    else:
        logger.log(
            logging.ERROR if is_committed else logging.WARNING,
            "%s begins again at %s, where the log of broker %s begins, and drops its records up to "
            "%s, high watermark %s",
            name,
            duty.offset,
            leader,
            log.end_offset,
            log.high_watermark,
        )


def _reason_of_cut(followed: Followed, log: Log) -> str:
    """Return the reason why committed records are cut off, as the end of a sentence."""
    if log.hole_offset is not None:
        return f"; its log has a hole from offset {log.hole_offset} on, and is filled again"
    return f", whose election in epoch {followed.partition.unclean_leader_epoch} was unclean"


async def _change(log: Log, duty: DiskDuty) -> None:
    if isinstance(duty, Flush):
        await log.flush()
    elif isinstance(duty, Truncate):
        await log.truncate_to(duty.offset)
    elif isinstance(duty, BeginAnew):
        await log.truncate_fully_and_start_at(duty.offset)
    elif duty.offset > log.log_start_offset:
        await log.delete_records_before(duty.offset)
