"""Random histories of a log directory: a start reports exactly the losses.

After a clean stop or a kill nothing is lost, whatever the broker did; after a power cut promised
records may be; after damage to a log with committed records they are. Planted bugs are found.
"""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.directories.checkpoint_file import HIGH_WATERMARK_FILE
from ottla.storage.directories.checkpoints_driver import CheckpointLine
from ottla.storage.log.log import Log
from ottla.storage.losses import log_losses
from ottla.storage.losses.known_losses_driver import KnownLosses
from ottla.storage.losses.log_losses import LogPromise, LossKind, ReplicaPlacement
from ottla.storage.manager import log_checkpoints
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from tests.storage.manager.test_log_manager import TrioClock, append, formatted_disk

PARTITIONS = [TopicPartition("a", index) for index in range(3)]
TOPIC_ID = UUID(int=1000)
DIRECTORY_ID = UUID(int=500)
CONFIG = LogConfig(segment_bytes=400, retention_bytes=1_200, is_deleted_by_retention=True)
STEPS_PER_LIFE = 12


class WrongLossError(AssertionError):
    """A start reported a loss that is none, or missed one."""


class DirectoryLife:
    """One log directory through many starts and ends of its broker."""

    def __init__(self, disk: SimulatedDisk, random: Random) -> None:
        self.disk = disk
        self.random = random
        self.placed: set[TopicPartition] = set()
        self.committed: dict[TopicPartition, Offset] = {}
        """High watermarks that were checkpointed, by partition."""
        self.rng = SeededRng(5)
        self.end = "clean"
        self.damaged: TopicPartition | None = None
        self.seen: set[str] = set()

    async def live(self, ends: tuple[str, ...]) -> None:
        """Start, judge, work and end once."""
        config = BrokerConfig(node_id=NodeId(1), log_dirs=("/one",))
        placements = [
            ReplicaPlacement(TOPIC_ID, at, DIRECTORY_ID, is_counted_on=True)
            for at in sorted(self.placed)
        ]
        async with open_log_manager(self.disk, config, TrioClock(), self.rng) as logs:
            await logs.open_logs(lambda at: CONFIG, placements)
            self._judge(logs)
            await logs.settle(lambda at, topic_id: False, lambda at: DIRECTORY_ID, placements)
            self._judge(logs)
            await logs.forget_losses(list(logs.losses))
            for at in sorted(self.placed):
                await logs.create(at, TOPIC_ID, CONFIG)
            for _ in range(self.random.randrange(STEPS_PER_LIFE)):
                await self._step(logs)
            self.end = self.random.choice(ends)
            if self.end == "clean":
                await logs.shutdown_cleanly(broker_epoch=1)
                self._note_committed(logs)
        if self.end == "power cut":
            self.disk.crash()
        else:
            self.disk.kill()
        self.seen.add(self.end)
        await self._damage()

    def _note_committed(self, logs: LogManager) -> None:
        lines = logs.directories[0].checkpoints.lines(HIGH_WATERMARK_FILE)
        self.committed = {at: lines.get(at, Offset(0)) for at in self.placed}

    def _judge(self, logs: LogManager) -> None:
        lost = {loss.partition: loss for loss in logs.losses.values()}
        if self.damaged is not None:
            self.seen.add("damaged")
            if self.damaged not in lost:
                raise WrongLossError(f"{self.damaged} is damaged, and not known to be")
        if self.end == "power cut":
            for at, loss in lost.items():
                self.seen.add("lost power")
                promised = loss.promised_end_offset
                if at != self.damaged and not (promised and loss.found_end_offset < promised):
                    raise WrongLossError(f"{at} lost nothing by the power cut: {loss}")
            return
        for at, loss in lost.items():
            if at != self.damaged:
                raise WrongLossError(f"{at} lost nothing after {self.end}: {loss}")

    async def _step(self, logs: LogManager) -> None:
        random = self.random
        at = random.choice(PARTITIONS)
        log = logs.get(at)
        if log is None:
            self.placed.add(at)
            if random.random() < 0.9:  # else the broker ends before it made the log
                await logs.create(at, TOPIC_ID, CONFIG)
            return
        assert isinstance(log, Log)
        kind = random.choice(
            ["append", "append", "commit", "commit", "flush", "checkpoint", "delete records",
             "truncate", "retention", "start again", "wait"]
        )  # fmt: skip
        if kind == "append":
            for _ in range(random.randrange(1, 8)):
                append(log, b"x" * random.randrange(40))
        elif kind == "commit":
            log.update_high_watermark(Offset(random.randint(log.high_watermark, log.end_offset)))
        elif kind == "flush":
            await log.flush()
        elif kind == "checkpoint":
            await logs.checkpoint_high_watermarks()
            await logs.checkpoint_recovery_points()
        elif kind == "delete records":
            await log.delete_records_before(
                Offset(random.randint(log.log_start_offset, log.high_watermark))
            )
        elif kind == "truncate":
            await log.truncate_to(Offset(random.randint(log.log_start_offset, log.end_offset)))
        elif kind == "retention":
            await log.delete_old_segments(1_000)
        elif kind == "start again":
            await log.truncate_fully_and_start_at(Offset(random.randint(0, log.end_offset)))
        else:
            await trio.sleep(random.choice([0.1, 1.5, 70]))
        self.seen.add(kind)
        self._note_committed(logs)

    async def _damage(self) -> None:
        """Damage a log with committed records, if that is what this end does."""
        self.damaged = None
        whole = [
            at
            for at, offset in self.committed.items()
            if offset > 0 and self.disk.exists(f"/one/{at}") and await self._has_records(at)
        ]
        if self.end == "power cut" or not whole or self.random.random() < 0.6:
            return
        at = self.damaged = self.random.choice(sorted(whole))
        if self.random.random() < 0.5:
            await self.disk.remove_tree(f"/one/{at}")
        else:
            for name in await self.disk.listdir(f"/one/{at}"):
                if name.endswith(".log"):
                    await self.disk.unlink(f"/one/{at}/{name}")

    async def _has_records(self, at: TopicPartition) -> bool:
        """Return whether records below the checkpointed watermark lie above the log start."""
        data = (
            await self.disk.read_file("/one/log-start-offset-checkpoint")
            if self.disk.exists("/one/log-start-offset-checkpoint")
            else b"0\n0\n"
        )
        starts = {
            TopicPartition(topic, int(index)): int(offset)
            for topic, index, offset in (line.split() for line in data.decode().splitlines()[2:])
        }
        return starts.get(at, 0) < self.committed[at]


async def live_many(
    seeds: range, ends: tuple[str, ...] = ("clean", "kill", "power cut")
) -> set[str]:
    seen: set[str] = set()
    for seed in seeds:
        life = DirectoryLife(await formatted_disk("/one", seed=seed), Random(seed))
        for _ in range(6):
            await life.live(("clean", "kill", "power cut"))
        seen |= life.seen
    return seen


async def test_a_start_reports_what_is_lost_and_nothing_else(autojump_clock: MockClock) -> None:
    seen = await live_many(range(60))
    assert seen >= {"clean", "kill", "power cut", "damaged", "lost power", "start again"}


def forget_at_once() -> Any:
    async def write(self: KnownLosses, directories: object) -> None:
        self.by_partition = {}

    return mock.patch.object(KnownLosses, "_write", write)


def trust_the_image_alone() -> Any:
    def kind_of_absence(promise: LogPromise, **known: bool) -> LossKind | None:
        return LossKind.MISSING if promise.is_counted_on else None

    return mock.patch.object(log_losses, "kind_of_absence", kind_of_absence)


def overlook_what_was_cut() -> Any:
    return mock.patch.object(log_losses, "kind_of_shortfall", lambda promise, end_offset: None)


def write_lines_of_logs_that_may_go() -> Any:
    def lines_of(name: str, logs: Any) -> dict[TopicPartition, CheckpointLine]:
        value_of = log_checkpoints.CHECKPOINTS[name]
        lines = {}
        for partition, log in logs:
            offset = value_of(log)
            if offset is not None:
                lines[partition] = CheckpointLine(log.topic_id, offset)
        return lines

    return mock.patch("ottla.storage.manager.log_manager_driver.lines_of", lines_of)


def keep_the_watermark_of_what_was_cut() -> Any:
    async def keep_recession(self: LogManager, directory: object) -> None:
        pass

    return mock.patch.object(LogManager, "_write_lower_checkpoints", keep_recession)


PLANTED: list[Callable[[], Any]] = [
    forget_at_once,
    trust_the_image_alone,
    overlook_what_was_cut,
    keep_the_watermark_of_what_was_cut,
    write_lines_of_logs_that_may_go,
]


FOUND_AT = {
    "overlook_what_was_cut": 31,
    "keep_the_watermark_of_what_was_cut": 17,
    "write_lines_of_logs_that_may_go": 151,
}
"""Seeds that found bugs. A change of the lives moves them: then the hunt continues from here."""


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(plant: Callable[[], Any], autojump_clock: MockClock) -> None:
    first = FOUND_AT.get(plant.__name__, 0)
    with plant(), pytest.RaisesGroup(WrongLossError, flatten_subgroups=True):
        await live_many(range(first, first + 200))
