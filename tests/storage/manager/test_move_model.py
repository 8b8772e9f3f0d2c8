"""A log that is appended to, truncated, trimmed and moved between directories, against a list of
records.

The process dies at any call of the disk, its machine with it or not. Flushed records are never
lost, written ones are lost only with the machine, and no deleted record comes back.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.log.log import Log
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.search_length import length
from tests.storage.log.workbench import read_values

A0 = TopicPartition("a", 0)
TOPIC_ID = UUID(int=1000)
CONFIG = LogConfig(
    segment_bytes=3_000, index_interval_bytes=500, segment_index_bytes=96, file_delete_delay_ms=0
)
DIRECTORIES = {"/one": UUID(int=500), "/two": UUID(int=501)}
VALUE_BYTES = 600
DEATH = "death"


class TrioClock:
    """Time is trio's, so that nothing is waited for."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    wall_ms = monotonic_ms


@dataclass
class MoveLife:
    """A disk, the process on it, and what must hold."""

    seed: int
    values: dict[int, int] = field(default_factory=dict)
    """By offset, all there is or was."""
    start: int = 0
    start_max: int = 0
    """Up to where a deletion that was cut short may have taken records."""
    end: int = 0
    flushed_end: int = 0
    cut: int | None = None
    """Offset of the truncation under way."""
    known: UUID = DIRECTORIES["/one"]
    """Directory of the log in the metadata."""
    value: int = 0
    countdown: int = -1
    is_power_cut: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(SeededRng(self.seed), pause=self.pause)

    async def pause(self) -> None:
        """Let others go first, and die when it is time."""
        if self.countdown >= 0:
            self.countdown -= 1
            if self.countdown < 0:
                self.scope.cancel()
        await trio.lowlevel.checkpoint()

    async def announce(self, partition: TopicPartition, directory_id: UUID) -> None:
        await trio.lowlevel.checkpoint()
        self.known = directory_id

    async def format(self) -> None:
        for path, directory_id in DIRECTORIES.items():
            await self.disk.makedirs(path)
            identity = MetaProperties(cluster_id="c", node_id=NodeId(1), directory_id=directory_id)
            await self.disk.write_atomically(
                f"{path}/meta.properties", format_meta_properties(identity)
            )
        self.disk.flush_everything()

    @asynccontextmanager
    async def process(self) -> AsyncIterator[LogManager]:
        config = BrokerConfig(node_id=NodeId(1), log_dirs=tuple(DIRECTORIES))
        async with open_log_manager(self.disk, config, TrioClock(), SeededRng(5)) as logs:
            logs.moves.announce = self.announce
            await logs.recover(lambda at: CONFIG, directory_id_of=lambda at: self.known)
            yield logs

    # ---- what is done

    async def take(self, logs: LogManager, step: str, argument: int) -> None:
        """Do one thing, noting before what a death inside it may leave."""
        log = served(logs)
        match step:
            case "append":
                for _ in range(1 + argument % 3):
                    self.append(log)
            case "commit":
                log.update_high_watermark(log.end_offset)
            case "flush":
                end = log.end_offset
                await log.flush()
                self.flushed_end = max(self.flushed_end, min(end, log.recovery_point))
            case "truncate":
                offset = max(log.high_watermark, log.end_offset - argument)
                self.cut, self.flushed_end = offset, min(self.flushed_end, offset)
                await log.truncate_to(Offset(offset))
                self.cut, self.end = None, log.end_offset
            case "delete":
                before = min(log.high_watermark, log.log_start_offset + argument)
                self.start_max = max(self.start_max, before)
                await log.delete_records_before(Offset(before))
                self.start = max(self.start, before)
            case "move":
                logs.start_move(A0, logs.directories[argument % 2])
            case "wait":
                await trio.sleep(argument / 10)
            case "doomed move":
                self.countdown, self.is_power_cut = argument // 2, bool(argument % 2)
                there = [one for one in logs.directories if one is not logs.directory_of(A0)]
                logs.start_move(A0, there[0])
                while self.countdown >= 0 and len(logs.moves):
                    self.append(served(logs))
                    await trio.sleep(0.001)
            case _:
                self.countdown, self.is_power_cut = argument, step.startswith("power")
        self.check_bounds(served(logs))

    def append(self, log: Log) -> None:
        self.value += 1
        batch = build_batch([(1_000, None, b"%d " % self.value + bytes(VALUE_BYTES))])
        self.values[log.end_offset] = self.value
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=1_000)
        self.end = log.end_offset

    # ---- what must hold

    def check_bounds(self, log: Log) -> None:
        assert (
            log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset
        )

    def check_after_start(self, log: Log, *, was_power_cut: bool) -> None:
        """Check the recovered log against the list, and continue with its records."""
        self.check_bounds(log)
        at_least = self.flushed_end if was_power_cut else self.end
        at_least = at_least if self.cut is None else min(at_least, self.cut)
        found = numbers(log)
        assert self.start <= log.log_start_offset <= max(self.start_max, self.start)
        assert at_least <= log.end_offset <= self.end
        expected = range(log.log_start_offset, log.end_offset)
        assert found == {at: self.values[at] for at in expected}
        self.start = self.start_max = log.log_start_offset
        self.end, self.cut = log.end_offset, None
        self.flushed_end = min(self.flushed_end, self.end)


def served(logs: LogManager) -> Log:
    log = logs.get(A0)
    assert log is not None
    return log


def numbers(log: Log) -> dict[int, int]:
    return {at: int(value.split()[0]) for at, value in read_values(log) if value is not None}


STEPS = st.lists(
    st.one_of(
        *[st.tuples(st.just("append"), st.integers(0, 8))] * 4,
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 8)),
        st.tuples(st.just("delete"), st.integers(0, 8)),
        *[st.tuples(st.just("move"), st.integers(0, 1))] * 2,
        st.tuples(st.just("wait"), st.integers(0, 30)),
        *[st.tuples(st.just("doomed move"), st.integers(0, 200))] * 2,
        st.tuples(st.sampled_from(["power cut", "kill"]), st.integers(0, 60)),
    ),
    max_size=30,
)
Steps = list[tuple[str, int]]


async def live(seed: int, steps: Steps) -> None:
    """Live as many lives as the deaths among the steps make."""
    life = MoveLife(seed)
    await life.format()
    async with life.process() as logs:
        await logs.create(A0, TOPIC_ID, CONFIG, directory_id=life.known)
    life.disk.flush_everything()
    life.disk.kill()
    rest = [*reversed(steps)]
    was_power_cut, is_over = False, False
    while not is_over:
        life.scope = trio.CancelScope()
        with life.scope:
            async with life.process() as logs:
                life.check_after_start(served(logs), was_power_cut=was_power_cut)
                while rest:
                    await life.take(logs, *rest.pop())
                while len(logs.moves):
                    await trio.sleep(0.1)
                life.countdown = -1
        is_over = not life.scope.cancelled_caught
        life.countdown = -1
        was_power_cut = life.is_power_cut and not is_over
        if was_power_cut:
            life.disk.crash()
        else:
            life.disk.kill()
    async with life.process() as logs:
        life.check_after_start(served(logs), was_power_cut=False)
        await trio.sleep(2)
        files = [path for root in DIRECTORIES for path in life.disk.files_in(root)]
        assert len({path.split("/")[1] for path in files if "/a-0/" in path}) == 1


@settings(max_examples=length(30, 80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 30), steps=STEPS)
def test_what_moves_and_dies_reads_as_the_list_of_its_records(seed: int, steps: Steps) -> None:
    clock = trio.testing.MockClock(autojump_threshold=0)
    trio.run(live, seed, steps, clock=clock)
