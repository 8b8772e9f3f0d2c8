"""Mutants (deliberate bugs that the simulation must find) in two areas: a broker with a failing
disk, and topics whose names are reused after a deletion."""

import errno
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from ottla.broker.replicas import replica_fetcher_driver, replica_manager
from ottla.broker.replicas.follower_fetch import (
    FollowedPartition,
    RaiseStart,
    Truncate,
    TruncateFully,
)
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.jepsen.world.whole.whole_cluster import DisksOfCluster, NamesOfCluster
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.reserved_space import ReservedSpace
from ottla.raft.effects import Append
from ottla.storage.directories.checkpoints_driver import CheckpointLine, Checkpoints
from ottla.storage.disk import disk_errors
from ottla.storage.disk.disk_seam import DiskFile
from ottla.storage.log.log import Log
from ottla.storage.log.log_health import LogHealth
from ottla.storage.log.segment_remover import SegmentRemover
from ottla.storage.log.truncator import Truncator
from ottla.storage.manager import log_manager_driver
from ottla.storage.manager.log_manager_driver import PlacedLogOwner
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segments.entry_file import EntryFile

DISKS, MOVES, NAMES = "disks", "moves", "names"

# --- failing disks --------------------------------------------------------------------------------


def _keep_the_failure_to_the_log() -> Any:
    return patched(PlacedLogOwner, on_disk_failed=lambda self, reason: None)


def _take_want_of_descriptors_for_a_failure() -> Any:
    return patched(disk_errors, RESOURCE_ERRNOS=frozenset())


def _wait_for_the_disk_in_a_publisher() -> Any:
    original = ReplicaManager.publish

    async def publish(self: ReplicaManager, delta: MetadataDelta, image: MetadataImage) -> None:
        await original(self, delta, image)
        await self._work.wait_done()  # type: ignore[attr-defined]

    return patched(ReplicaManager, publish=publish)


@contextmanager
def _make_empty_replicas_anywhere() -> Iterator[None]:
    with (
        patched(replica_manager, _holds_nothing=lambda state, replica: True),
        patched(DisksOfCluster, only=("lost directory",), directory_counts=(2,)),
    ):
        yield


def _give_nothing(self: ReservedSpace, size_bytes: int, *, is_for_election: bool = False) -> bool:
    return False


def _append_or_end(self: MetadataLog, append: Append) -> None:
    try:
        self._append(append)
    except RefusedError as refusal:
        raise OSError(errno.EIO, refusal.message, self.directory) from refusal


@contextmanager
def _end_by_a_full_disk() -> Iterator[None]:
    with (
        patched(ReservedSpace, give=_give_nothing),
        patched(MetadataLog, append=_append_or_end),
        patched(DisksOfCluster, only=("full disk",)),
    ):
        yield


# --- reused names ---------------------------------------------------------------------------------


def _offset_by_name(
    self: Checkpoints, name: str, partition: TopicPartition, topic_id: UUID
) -> Offset | None:
    return self._lines[name].get(partition)


async def _forget_nothing(
    self: Checkpoints, partition: TopicPartition, kept: Callable[[], Collection[TopicPartition]]
) -> None:
    """Keep the entries of deleted partitions in the checkpoint files instead of removing them. A
    mutant installs this function in place of the original."""


async def _replace_by_name(
    self: Checkpoints, name: str, lines: Mapping[TopicPartition, CheckpointLine]
) -> None:
    await self._write_lines(name, {key: line.offset for key, line in lines.items()})


def _place_at_the_end(
    followed: FollowedPartition, leader_start: Offset, leader_end: Offset
) -> Truncate | TruncateFully | RaiseStart:
    log = followed.log
    shared_end, followed.shared_end = followed.shared_end, None
    if shared_end is not None:
        return Truncate(shared_end)
    if leader_end < log.end_offset:
        return Truncate(leader_end)
    if leader_start > log.end_offset:
        return TruncateFully(leader_start)
    return RaiseStart(min(leader_start, log.high_watermark))


@contextmanager
def _checkpoints_by_name() -> Iterator[None]:
    with (
        patched(
            Checkpoints,
            offset_of=_offset_by_name,
            forget=_forget_nothing,
            _replace=_replace_by_name,
        ),
        patched(replica_fetcher_driver, place_of=_place_at_the_end),
        patched(NamesOfCluster, only=("topic made again",)),
    ):
        yield


# --- a directory that fails inside a truncation ---------------------------------------------------


@contextmanager
def _assert_closed_files_open() -> Iterator[None]:
    original_open, original_check = EntryFile._open, LogHealth.check_online
    truncating: list[LogHealth] = []

    def open_file(self: EntryFile) -> DiskFile:
        assert not self._is_closed
        return original_open(self)

    def check_online(self: LogHealth) -> None:
        if self not in truncating:
            original_check(self)

    def unchecked(truncate: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def truncate_unchecked(self: Truncator, *arguments: Any) -> Any:
            truncating.append(self._health)
            try:
                return await truncate(self, *arguments)
            finally:
                truncating.remove(self._health)

        return truncate_unchecked

    with (
        patched(EntryFile, _open=open_file),
        patched(LogHealth, check_online=check_online),
        patched(
            Truncator,
            _remove_files=unchecked(Truncator._remove_files),
            _reload_producers=unchecked(Truncator._reload_producers),
            _begin_again_at=unchecked(Truncator._begin_again_at),
        ),
    ):
        yield


# --- a removal that outlives its topic ------------------------------------------------------------


async def _wait_for_no_task(log: Log) -> None:
    """Remove a log's directory without waiting for tasks that use its files. A mutant installs this
    function in place of the original."""


async def _remove_on(self: SegmentRemover) -> None:
    state, files = self._state, self._files
    state.is_removing = True
    try:
        while state.passed:
            segment = state.passed[0]
            await files.remove(segment)
            await files.producer_files.remove(segment.base_offset)
            state.passed = state.passed[1:]
        state.epochs.truncate_from_start(state.segments[0].base_offset)
    finally:
        state.is_removing = False


@contextmanager
def _unlink_by_name() -> Iterator[None]:
    with (
        patched(log_manager_driver, wait_until_idle=_wait_for_no_task),
        patched(SegmentRemover, _remove_files=_remove_on),
        patched(NamesOfCluster, only=("late removal",)),
    ):
        yield


def _keep_the_settings_of_the_start() -> Any:
    original = ReplicaManager._attach

    def attach(self: ReplicaManager, partition: Partition, log: Log) -> None:
        settings = log.config
        original(self, partition, log)
        log.config = settings

    return patched(ReplicaManager, _attach=attach)


def _forget_producers_by_their_records() -> Any:
    def expire(self: ProducerStates, now_ms: int, expiration_ms: int) -> int:
        return self._forget(
            [
                producer_id
                for producer_id, producer in self.producers.items()
                if now_ms - producer.last_timestamp_ms >= expiration_ms
            ]
        )

    return patched(ProducerStates, expire=expire)


# --- logs that move between directories -----------------------------------------------------------


def _stay_with_the_old_log(self: ReplicaManager, at: TopicPartition, log: Log) -> None:
    """Keep a partition on its old log after a move to another log directory. A mutant installs this
    function in place of the original."""


LOG_MUTANT = Mutant(
    name="truncation-of-closed-files",
    sentence="a truncation continues in the files of a directory that failed meanwhile",
    engine="walk",
    subject="log-failing",
    plant=_assert_closed_files_open,
    seed_count=1_000,
    is_quick=True,
)


def _mutant(
    subject: str,
    name: str,
    sentence: str,
    plant: Plant,
    seed_count: int,
    *,
    quick_budget: int = 0,
    first_seed: int = 0,
) -> Mutant:
    """Return a mutant (deliberate bug). If `quick_budget` is not 0, a run of this many events finds
    the mutant, and the mutant is part of every test run. Such a run enables only the one fault that
    reveals the bug."""
    return Mutant(
        name=name,
        sentence=sentence,
        engine="whole",
        subject=subject,
        plant=plant,
        seed_count=seed_count,
        budget=quick_budget,
        first_seed=first_seed,
        is_quick=quick_budget > 0,
    )


MUTANTS: tuple[Mutant, ...] = (
    LOG_MUTANT,
    _mutant(
        DISKS,
        "failed-file-alone",
        "a failed file takes its log offline, but not its directory",
        _keep_the_failure_to_the_log,
        40,
    ),
    _mutant(
        DISKS,
        "descriptors-for-a-failure",
        "a directory in which no file can be opened for a while counts as failed",
        _take_want_of_descriptors_for_a_failure,
        20,
    ),
    _mutant(
        DISKS,
        "publisher-waits-for-disk",
        "a metadata publisher waits for the logs that it requested",
        _wait_for_the_disk_in_a_publisher,
        40,
    ),
    _mutant(
        DISKS,
        "empty-replica-elsewhere",
        "a replica whose directory is missing is created again in another one",
        _make_empty_replicas_anywhere,
        60,
        quick_budget=14_000,
        first_seed=2,
    ),
    _mutant(
        DISKS,
        "full-disk-ends-nodes",
        "no space is reserved for the metadata log, and a node that cannot append to it ends",
        _end_by_a_full_disk,
        20,
        quick_budget=10_000,
    ),
    _mutant(
        MOVES,
        "old-log-after-a-move",
        "a partition whose log moved continues with the old one",
        lambda: patched(ReplicaManager, on_moved=_stay_with_the_old_log),
        20,
        quick_budget=8_000,
        first_seed=3,
    ),
    _mutant(
        NAMES,
        "checkpoints-by-name",
        "checkpoints of a deleted topic apply to the next topic of its name",
        _checkpoints_by_name,
        60,
        quick_budget=14_000,
    ),
    _mutant(
        NAMES,
        "removal-by-name",
        "a deleted topic's removal continues in the files of the next topic of its name",
        _unlink_by_name,
        20,
        quick_budget=8_000,
    ),
    _mutant(
        NAMES,
        "settings-of-the-start",
        "a log keeps the settings with which it was opened, even if they changed meanwhile",
        _keep_the_settings_of_the_start,
        60,
    ),
    _mutant(
        NAMES,
        "producers-forgotten-by-records",
        "a producer of old records expires as if it had not written for a long time",
        _forget_producers_by_their_records,
        20,
    ),
)
