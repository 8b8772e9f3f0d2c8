"""Mutants of a broker with a disk in trouble, and of topics whose names are used again."""

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

from ottla.broker.replicas import follower_fetch, replica_manager
from ottla.broker.replicas.follower_fetch import BeginAnew, Followed, Truncate
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.ids import Offset, TopicPartition
from ottla.storage import disk_errors
from ottla.storage.checkpoints_driver import Checkpoints
from ottla.storage.log import Log
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_manager_driver import LogManager
from ottla.storage.producer_state import ProducerStates

DISKS, NAMES = "disks", "names"

# --- disks in trouble -----------------------------------------------------------------------------


def _keep_the_failure_to_the_log() -> Any:
    original = LogManager._place

    def place(
        self: LogManager, partition: TopicPartition, log: Log, directory: LogDirectory
    ) -> None:
        original(self, partition, log, directory)
        log.on_disk_failed = lambda failed: None

    return patched(LogManager, _place=place)


def _take_want_of_descriptors_for_a_failure() -> Any:
    return patched(disk_errors, RESOURCE_ERRNOS=frozenset())


def _wait_for_the_disk_in_a_publisher() -> Any:
    original = ReplicaManager.publish

    async def publish(self: ReplicaManager, delta: MetadataDelta, image: MetadataImage) -> None:
        await original(self, delta, image)
        await self._work.wait_done()  # type: ignore[attr-defined]

    return patched(ReplicaManager, publish=publish)


def _make_empty_replicas_anywhere() -> Any:
    return patched(replica_manager, _holds_nothing=lambda state, replica: True)


# --- names that are used again --------------------------------------------------------------------


def _offset_by_name(
    self: Checkpoints, name: str, partition: TopicPartition, topic_id: UUID
) -> Offset | None:
    return self._lines[name].get(partition)


async def _forget_nothing(
    self: Checkpoints, partition: TopicPartition, kept: Callable[[], Collection[TopicPartition]]
) -> None:
    """Leave the lines where they are."""


def _begin_at_the_end(
    followed: Followed, leader_start: Offset, leader_end: Offset
) -> Truncate | BeginAnew:
    log = followed.log
    shared_end = leader_end if followed.shared_end is None else followed.shared_end
    followed.shared_end = None
    if leader_start > log.end_offset:
        return BeginAnew(leader_start)
    return Truncate(max(log.log_start_offset, min(shared_end, leader_end)))


@contextmanager
def _checkpoints_by_name() -> Iterator[None]:
    original = follower_fetch.place_of

    def place_of(followed: Followed, leader_start: Offset, leader_end: Offset) -> Any:
        place = original(followed, leader_start, leader_end)
        if isinstance(place, BeginAnew) and leader_start < followed.log.end_offset:
            return _begin_at_the_end(followed, leader_start, leader_end)
        return place

    with ExitStack() as stack:
        stack.enter_context(patched(Checkpoints, offset_of=_offset_by_name, forget=_forget_nothing))
        stack.enter_context(patched(follower_fetch, place_of=place_of))
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


def _mutant(subject: str, name: str, sentence: str, plant: Plant, seed_count: int) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="C",
        subject=subject,
        plant=plant,
        seed_count=seed_count,
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        DISKS,
        "failed-file-alone",
        "a file that fails takes its log offline, and nobody else hears of it",
        _keep_the_failure_to_the_log,
        40,
    ),
    _mutant(
        DISKS,
        "descriptors-for-a-failure",
        "a directory in which no file can be opened for a while is taken for a failed one",
        _take_want_of_descriptors_for_a_failure,
        20,
    ),
    _mutant(
        DISKS,
        "publisher-waits-for-disk",
        "a publisher of metadata waits for the logs that it asked for",
        _wait_for_the_disk_in_a_publisher,
        40,
    ),
    _mutant(
        DISKS,
        "empty-replica-elsewhere",
        "a replica whose directory is missing is made anew in another one",
        _make_empty_replicas_anywhere,
        60,
    ),
    _mutant(
        NAMES,
        "checkpoints-by-name",
        "what a checkpoint says of a topic holds for the next one of its name",
        _checkpoints_by_name,
        60,
    ),
    _mutant(
        NAMES,
        "settings-of-the-start",
        "a log keeps the settings it was opened with, whatever changed meanwhile",
        _keep_the_settings_of_the_start,
        60,
    ),
    _mutant(
        NAMES,
        "producers-forgotten-by-records",
        "a producer of old records is forgotten as if it had not written for long",
        _forget_producers_by_their_records,
        20,
    ),
)
