"""Performs disk operations (duties) on a follower's log that the leader's response requires. An
error affects only its own partition.

The process runs duties concurrently, and the simulation sequentially. A duty has the same effect on
a log in both cases, and errors of a log are handled in the same way. Pure except for the log.

Invariant CommittedIsNotCut: a cleanly elected leader has all committed records. If it lacks records
below this replica's high watermark, it has lost them, and this replica may have their last copies.
The partition is then not followed until an operator decides. After an unclean election the records
may be truncated.
"""

import logging

from ottla.broker.replicas.follower_fetch import (
    LEADER_LACKS_RECORDS,
    BeginAfterTier,
    Flush,
    FollowedPartition,
    FollowerFetch,
    LeaderLacksRecordsError,
    RaiseStart,
    Truncate,
    TruncateFully,
)
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import Offset
from ottla.model.log_events import event
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log.log import Log

logger = logging.getLogger("ottla.broker.replicas")

DiskDuty = Flush | Truncate | TruncateFully | RaiseStart | BeginAfterTier
"""Disk operation on a follower's log that needs no further information from the leader."""


async def perform_duty(
    core: FollowerFetch,
    followed: FollowedPartition,
    log: Log,
    duty: DiskDuty,
    *,
    clock: Clock,
    errors: UnexpectedErrors,
) -> None:
    """Perform one disk operation on the log of a followed partition. If the log raises an error,
    the partition is marked as failed and is not fetched until a retry."""
    try:
        _check(core, followed, log, duty)
        await _change(log, duty)
    except OttlaError as error:
        core.mark_failed(followed, error, clock.monotonic_ms())
    except Exception as error:
        errors.note("partition", followed.name, error)
        core.mark_failed(followed, error, clock.monotonic_ms())
    else:
        core.done(followed)


def violated_high_watermark(followed: FollowedPartition, log: Log, duty: DiskDuty) -> Offset | None:
    """Return this replica's high watermark if a duty (disk work on the log) would drop committed
    records. Returns None if the duty drops no committed records, or may drop them.

    If the log ends in the epoch of the last unclean election, or later, it agrees with the outcome
    of that election. Records below this replica's high watermark were committed after the election.
    Records behind a hole in the log may be dropped, since they are fetched again.
    """
    if not isinstance(duty, Truncate | TruncateFully) or duty.offset >= log.high_watermark:
        return None
    if log.hole_offset is not None and duty.offset >= log.hole_offset:
        return None
    is_decided = log.last_epoch < followed.partition.unclean_leader_epoch
    return None if is_decided else log.high_watermark


def _check(core: FollowerFetch, followed: FollowedPartition, log: Log, duty: DiskDuty) -> None:
    """Write a log message about the truncation that a duty (disk work on the log) causes. Raises
    LeaderLacksRecordsError if the duty would drop committed records."""
    leader, name = core.leader_id, followed.name
    if isinstance(duty, BeginAfterTier):
        logger.info(
            "%s begins again at %s, after the records that only the object store has, and drops its"
            " records up to %s",
            name,
            duty.start.offset,
            log.end_offset,
        )
    if not isinstance(duty, Truncate | TruncateFully):
        return
    if violated_high_watermark(followed, log, duty) is not None:
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


def _reason_of_cut(followed: FollowedPartition, log: Log) -> str:
    """Return the end of a log message: the reason why committed records of a follower may be
    truncated."""
    if log.hole_offset is not None:
        return f"; its log has a hole from offset {log.hole_offset} on, and is filled again"
    return f", whose election in epoch {followed.partition.unclean_leader_epoch} was unclean"


async def _change(log: Log, duty: DiskDuty) -> None:
    if isinstance(duty, Flush):
        await log.flush()
    elif isinstance(duty, Truncate):
        await log.truncate_to(duty.offset)
    elif isinstance(duty, TruncateFully):
        await log.truncate_fully_and_start_at(duty.offset)
    elif isinstance(duty, BeginAfterTier):
        start = duty.start
        await log.begin_at(
            start.offset,
            log_start_offset=duty.log_start_offset,
            epochs=start.epochs,
            producer_snapshot=start.producer_snapshot,
            now_ms=duty.now_ms,
        )
    elif duty.offset > log.log_start_offset:
        await log.delete_records_before(duty.offset)
