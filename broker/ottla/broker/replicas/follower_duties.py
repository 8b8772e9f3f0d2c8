"""Carries out what follows from a leader's answer and takes a disk, and the edge of its partition.

The process's fetchers run duties side by side, the walks of the world at once; what a duty does to
a log, and what becomes of a partition whose log refuses or fails, is the same.  Pure but for the
log.
"""

from ottla.broker.replicas.follower_fetch import (
    BeginAnew,
    Flush,
    Followed,
    FollowerFetch,
    RaiseStart,
    Truncate,
)
from ottla.model.errors import OttlaError
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log import Log

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
        await _change(log, duty)
    except OttlaError as error:
        core.set_aside(followed, error, clock.monotonic_ms())
    except Exception as error:
        errors.note("partition", followed.name, error)
        core.set_aside(followed, error, clock.monotonic_ms())
    else:
        core.done(followed)


async def _change(log: Log, duty: DiskDuty) -> None:
    if isinstance(duty, Flush):
        await log.flush()
    elif isinstance(duty, Truncate):
        await log.truncate_to(duty.offset)
    elif isinstance(duty, BeginAnew):
        await log.truncate_fully_and_start_at(duty.offset)
    elif duty.offset > log.log_start_offset:
        await log.delete_records_before(duty.offset)
