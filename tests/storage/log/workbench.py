"""A partition directory whose log is opened, killed and opened again, on any Disk."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.model.ids import ZERO_UUID, Epoch, Offset
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log, open_log
from ottla.storage.log.log_owner import LogOwner
from ottla.storage.log.log_reader import LogRead
from ottla.storage.producers.verification import UNGUARDED, VerificationGuard
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import batches
from ottla.wire.records import scan

NOW_MS = 1_700_000_000_000
"""The bench's wall clock, which stands still."""

READ_BYTES = 1 << 20


class CallbackOwner(LogOwner):
    """Owner of a log whose notifications call functions: one for each given method name."""

    def __init__(self, **callbacks: Callable[..., Any]) -> None:
        vars(self).update(callbacks)


class Workbench:
    """One partition directory, and every log that was opened on it."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self._opened: list[Log] = []

    async def open(
        self,
        config: LogConfig,
        *,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> Log:
        """Open the directory as a process does that starts."""
        log = await open_log(
            self.disk,
            self.directory,
            config=config,
            topic_id=ZERO_UUID,
            is_clean=is_clean,
            recovery_point=Offset(recovery_point),
            log_start_offset=Offset(log_start_offset),
            now_ms=NOW_MS,
        )
        self._opened.append(log)
        return log

    async def kill_and_open(self, log: Log, *, recovery_point: int = 0) -> Log:
        """Let the process die without a word, and start it again."""
        log.abandon()
        return await self.open(log.config, recovery_point=recovery_point)

    async def close_and_open(self, log: Log) -> Log:
        """Stop the process with manners, and start it again."""
        await log.close()
        return await self.open(
            log.config,
            is_clean=True,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
        )

    def let_go(self) -> None:
        """Close what is still open."""
        for log in self._opened:
            log.abandon()


def append(
    log: Log,
    batch: bytes,
    *,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    guard: VerificationGuard | None = UNGUARDED,
    transaction_version: int = 0,
) -> AppendInfo:
    """Append as a leader does; without a guard, as where verification is off."""
    return log.append_as_leader(
        memoryview(batch),
        leader_epoch=Epoch(leader_epoch),
        now_ms=now_ms,
        origin=origin,
        guard=guard,
        transaction_version=transaction_version,
    )


def read_values(
    log: Log, start: int | None = None, *, bytes_max: int = READ_BYTES
) -> list[tuple[int, bytes | None]]:
    """Read to the end as a consumer does: (offset, value) of every record from `start` on."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset if start is None else Offset(start)
    while offset < log.end_offset:
        read = waited_for(partial(_read, log, offset, bytes_max))
        if read.slice is None:
            break
        data = memoryview(bytes_of(read.slice))
        for at, header in batches(data, is_partial_end_allowed=True):
            found += [(r.offset, r.value) for r in scan(data, at, header) if r.offset >= offset]
            offset = max(offset, header.end_offset)
    return found


def _read(log: Log, offset: Offset, bytes_max: int) -> LogRead:
    return log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset, at_least_one=True)
