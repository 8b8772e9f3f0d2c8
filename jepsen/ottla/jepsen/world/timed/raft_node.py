"""One member of the quorum in timed worlds: the real core over the real metadata log.

It performs effects in the order that `raft/effects.py` fixes, as `node/quorum_driver` does on trio:
one event at a time, only the fsync of the log beside them.  A disk that fails ends the process.
What the disk holds is mirrored for the judge, and compared with what a restart finds.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from ottla.jepsen.world.timed.machine import DriftingClock, SlowDisk
from ottla.jepsen.world.timed.timeline import Task, Timeline, sleep
from ottla.jepsen.world.violation import Violation
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, Offset, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.metadata_log import MetadataLog, open_metadata_log
from ottla.raft.effects import Append, Effects, LeaderChangeAppend, Outgoing, ReadLog, Reply
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, Flushed, ShutdownRequested, Tick
from ottla.raft.messages import FetchResponse, FetchSnapshotResponse, Response
from ottla.raft.quorum import QuorumCore
from ottla.raft.snapshot import BOOTSTRAP_ID, footer_batch, opening_batch
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.memory_log import Entry
from ottla.raft.voters import QuorumIdentity
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.wire.batch import batches, parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

ROOT = "/meta"
READ_BYTES = 1 << 20
LOCK_POLL_US = 50
"""How often a step that must wait for an fsync looks whether it is over."""

STEP_US = 5
"""What a step takes before anything leaves: between the disk and the network the power may go."""

Answer = Callable[[Response], None]


class Mirror:
    """What a replica's log holds, entry by entry, also while it is down: what the judge sees."""

    __slots__ = ("earliest_snapshot_id", "entries", "flushed_offset", "start_offset")

    def __init__(self) -> None:
        self.start_offset = Offset(0)
        self.flushed_offset = Offset(0)
        self.earliest_snapshot_id: OffsetAndEpoch | None = None
        self.entries: list[Entry] = []
        """From offset 0 on, those a snapshot stands for included."""

    @property
    def end_offset(self) -> Offset:
        """One past the last offset appended."""
        return Offset(len(self.entries))

    def entry(self, offset: int) -> Entry | None:
        """Return what the log, or a snapshot of it, has at an offset."""
        return self.entries[offset] if 0 <= offset < len(self.entries) else None

    def cut(self, offset: int) -> None:
        """Forget all from an offset on."""
        del self.entries[offset:]
        self.flushed_offset = min(self.flushed_offset, Offset(offset))

    def promise_at_most(self, offset: Offset) -> None:
        """Expect no more of a restart from here on: the log is about to be cut there."""
        self.flushed_offset = min(self.flushed_offset, offset)

    def follow(self, log: MetadataLog) -> None:
        """Note where the log begins and how far it is durable."""
        self.start_offset = log.start_offset
        self.flushed_offset = log.flushed_offset
        self.earliest_snapshot_id = log.earliest_snapshot_id


def entries_in(data: bytes) -> list[tuple[Offset, Entry]]:
    """Return the records of whole batches as the judge's entries."""
    found: list[tuple[Offset, Entry]] = []
    for at, header in batches(data):
        for record in scan(data, at, header):
            value = f"control {record.offset}" if header.is_control else _text(record.value)
            entry = Entry(header.partition_leader_epoch, value, header.is_control)
            found.append((record.offset, entry))
    return found


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def batch_of_values(values: Iterable[str], *, timestamp_ms: int) -> bytes:
    """Return values as one batch."""
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp_ms, None, value.encode())
    return builder.build()


def digest_of(entries: Iterable[Entry]) -> str:
    """Return what a snapshot says of all that it stands for."""
    hasher = blake2b(digest_size=12)
    for entry in entries:
        hasher.update(f"{entry.epoch}/{entry.value};".encode())
    return hasher.hexdigest()


class RaftNode:
    """One machine with one member of the quorum."""

    def __init__(
        self,
        identity: QuorumIdentity,
        config: QuorumConfig,
        timeline: Timeline,
        clock: DriftingClock,
        disk: SlowDisk,
        rng: Rng,
        invariants: Invariants,
        *,
        send: Callable[["RaftNode", Outgoing], None],
        on_step: Callable[["RaftNode", Event, Effects], None],
        on_death: Callable[["RaftNode", Exception], None],
    ) -> None:
        self.identity = identity
        self.disk = disk
        self.clock = clock
        self.mirror = Mirror()
        self.core: QuorumCore | None = None
        self.incarnation = 0
        self.is_paused = False
        """Whether the process stands still (SIGSTOP); what arrives waits."""
        self.snapshot_count = 0
        self.is_shutting_down = False
        self.doom_us: int | None = None
        """How long after the next great change of its disk begins the power is to go."""
        self._config = config
        self._timeline = timeline
        self._rng = rng
        self._invariants = invariants
        self._send = send
        self._on_step = on_step
        self._on_death = on_death
        self._log: MetadataLog | None = None
        self._applied_end = Offset(0)
        """What is committed and was handed to the state machine: the core may know of more."""
        self._persisted: ElectionState | None = None
        self._inbox: deque[tuple[Event, Answer | None]] = deque()
        self._answers: dict[int, Answer] = {}
        self._tasks: list[Task] = []
        self._is_starting = False
        self._is_working = False
        self._is_flusher_up = False
        self._is_flush_wanted = False
        self._is_log_taken = False
        """Whether a flush, or a change that must not meet one, is under way."""
        self._wake_sequence = 0
        invariants.watch(identity, self.mirror)

    @property
    def node_id(self) -> NodeId:
        """Return this node's id."""
        return self.identity.node_id

    @property
    def applied_end_offset(self) -> Offset:
        """Return the end of what is committed and was handed to the state machine."""
        return self._applied_end

    @property
    def is_starting(self) -> bool:
        """Say whether the process recovers its log."""
        return self._is_starting

    @property
    def is_up(self) -> bool:
        """Say whether the process runs and has recovered its log."""
        return self.core is not None

    @property
    def is_leader(self) -> bool:
        """Say whether this member leads, as far as it knows."""
        return self.core is not None and self.core.is_leader

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process; it takes part once its log is recovered."""
        self.incarnation += 1
        self.is_paused = self.is_shutting_down = False
        self._is_starting = True
        self._spawn(self._open())

    async def format(self) -> None:
        """Write what a fresh directory holds: the bootstrap snapshot with the voters."""
        directory = f"{ROOT}/{METADATA_DIRECTORY}"
        await self.disk.makedirs(directory)
        log = await open_metadata_log(self.disk, ROOT, config=self._config, clock=self.clock)
        await log.write_snapshot(BOOTSTRAP_ID, self._snapshot_batches(BOOTSTRAP_ID, []))
        await log.close()

    def stop(self, *, is_power_lost: bool) -> None:
        """End the process, or the machine, wherever it is."""
        durable_end = self.mirror.flushed_offset
        self.core = None
        self._log = None
        if is_power_lost:
            self.disk.crash()
            self.mirror.flushed_offset = durable_end
        else:
            self.disk.kill()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._inbox.clear()
        self._answers.clear()
        self._is_starting = self._is_working = self._is_log_taken = False
        self._is_flusher_up = self._is_flush_wanted = False
        self._wake_sequence += 1
        self._invariants.forget_volatile(self.node_id)

    async def _open(self) -> None:
        log = await open_metadata_log(self.disk, ROOT, config=self._config, clock=self.clock)
        self._persisted = await log.read_election()
        await self._compare(log)
        self._log = log
        latest = log.latest_snapshot_id
        self._applied_end = Offset(0) if latest is None else latest.offset
        self._is_starting = False
        now_ms = self.clock.monotonic_ms()
        self.core = QuorumCore(self._config, self.identity, log, self._persisted, self._rng, now_ms)
        self._take(Tick())

    async def _compare(self, log: MetadataLog) -> None:
        """FlushedIsKept: what was promised to be durable is there, all else was written once."""
        mirror, end_offset = self.mirror, log.end_offset
        if end_offset < mirror.flushed_offset:
            raise Violation(
                "FlushedIsKept",
                f"{self.node_id} ends at {end_offset}, had flushed {mirror.flushed_offset}",
            )
        latest = log.latest_snapshot_id
        if latest is not None and latest.offset > 0:
            await self._check_snapshot(log, latest)
            if log.start_offset == end_offset == latest.offset:
                mirror.entries = self._invariants.committed[:end_offset]
        at = log.start_offset
        while at < end_offset:
            data = await log.read(at, end_offset=end_offset, bytes_max=READ_BYTES)
            for offset, entry in entries_in(data):
                if offset >= mirror.end_offset:
                    mirror.entries.append(entry)  # of a write that failed, and yet got there
                if mirror.entry(offset) != entry:
                    raise Violation(
                        "FlushedIsKept",
                        f"{self.node_id} has {entry} at {offset}, not {mirror.entry(offset)}",
                    )
                at = Offset(offset + 1)
        mirror.cut(end_offset)
        mirror.follow(log)

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        incarnation = self.incarnation

        def on_end(error: BaseException | None) -> None:
            if error is None or incarnation != self.incarnation:
                return
            if not isinstance(error, OSError | RefusedError):
                raise error
            failure = error  # a replica that cannot remember must not answer

            def die() -> None:
                if incarnation == self.incarnation:
                    self.incarnation += 1
                    self._on_death(self, failure)

            # Not at once: it may be another task of ours whose call brought us here.
            self._timeline.later(0, die)

        task = self._timeline.spawn(coroutine, on_end)  # which may spawn others before it sleeps
        self._tasks = [each for each in self._tasks if not each.is_over]
        self._tasks.append(task)

    # --- events -------------------------------------------------------------------------------

    def ask(self, event: Event, answer: Answer | None = None) -> None:
        """Hand in what arrived from outside; nothing happens while the process is down."""
        if self.core is not None:
            self._take(event, answer)

    def propose(self, values: list[str]) -> None:
        """Append values as the leader, unless it is none by the time it comes to it."""
        if self.core is not None and self.core.is_leader:
            batch = batch_of_values(values, timestamp_ms=self.clock.wall_ms())
            self._take(AppendRequested(epoch=self.core.epoch, records=batch))

    def shut_down(self) -> None:
        """Ask for a hand-over, as a controlled stop does."""
        if self.core is not None:
            self.is_shutting_down = True
            self.ask(ShutdownRequested())

    def pause(self) -> None:
        """Stand still."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on, with all that arrived meanwhile."""
        self.is_paused = False
        self._work()

    def _take(self, event: Event, answer: Answer | None = None) -> None:
        self._inbox.append((event, answer))
        self._work()

    def _work(self) -> None:
        if not self._is_working and self._inbox and not self.is_paused:
            self._is_working = True
            self._spawn(self._run())

    async def _run(self) -> None:
        while self._inbox and not self.is_paused:
            event, answer = self._inbox.popleft()
            await self._step(event, answer)
        self._is_working = False

    async def _step(self, event: Event, answer: Answer | None) -> None:
        core, log = self.core, self._log
        assert core is not None
        assert log is not None
        if answer is not None:
            token = getattr(event, "token", 0)
            self._answers[token] = answer
        try:
            effects = core.step(event, self.clock.monotonic_ms())
        except RefusedError:
            return  # not the leader any more
        await self._write(log, effects)
        self.mirror.follow(log)
        self._invariants.check(self.node_id, core, self.mirror, self._persisted, event, effects)
        await sleep(STEP_US)
        for reply in effects.replies:
            await self._deliver(log, reply)
        for outgoing in effects.messages:
            self._send(self, outgoing)
        if effects.high_watermark is not None:
            log.note_high_watermark(effects.high_watermark)
            self._applied_end = effects.high_watermark
        self._wake_sequence += 1
        if effects.next_wake_ms is not None:
            self._wake_at(effects.next_wake_ms)
        self._on_step(self, event, effects)

    async def _write(self, log: MetadataLog, effects: Effects) -> None:
        if self.doom_us is not None and (effects.truncate_to is not None or effects.snapshot_chunk):
            self._meet_doom(self.doom_us)
        if effects.truncate_to is not None:
            await self._take_log()
            self.mirror.promise_at_most(effects.truncate_to)
            await log.truncate_to(effects.truncate_to)
            self.mirror.cut(log.end_offset)
            self._is_log_taken = False
        for append in effects.append:
            await self._append(log, append)
        chunk = effects.snapshot_chunk
        if chunk is not None:
            await self._take_log()
            if chunk.is_last:
                self.mirror.promise_at_most(chunk.snapshot_id.offset)
            await log.write_chunk(chunk)
            if chunk.is_last:
                await self._install(log, chunk.snapshot_id)
            self._is_log_taken = False
        if effects.persist_election is not None:
            await log.write_election(effects.persist_election)
            self._persisted = effects.persist_election
        if effects.flush:
            self._is_flush_wanted = True
            if not self._is_flusher_up:
                self._is_flusher_up = True
                self._spawn(self._flush())

    def _meet_doom(self, delay_us: int) -> None:
        self.doom_us = None
        incarnation = self.incarnation

        def strike() -> None:
            if incarnation == self.incarnation:
                self.incarnation += 1
                self._on_death(self, OSError("the power went"))

        self._timeline.later(delay_us, strike)

    async def _append(self, log: MetadataLog, append: Append) -> None:
        start = log.end_offset
        log.append(append)
        while start < log.end_offset:
            data = await log.read(start, end_offset=log.end_offset, bytes_max=READ_BYTES)
            self.mirror.entries += [entry for _, entry in entries_in(data)]
            start = self.mirror.end_offset
        assert self.mirror.end_offset == log.end_offset
        if isinstance(append, LeaderChangeAppend):
            assert self.mirror.entries[-1].is_leader_change

    async def _flush(self) -> None:
        log = self._log
        assert log is not None
        while self._is_flush_wanted:
            await self._take_log()
            self._is_flush_wanted = False
            end_offset = await log.flush()
            self._is_log_taken = False
            self.mirror.follow(log)
            self._take(Flushed(end_offset=end_offset))
        self._is_flusher_up = False

    async def _take_log(self) -> None:
        while self._is_log_taken:
            await sleep(LOCK_POLL_US)
        self._is_log_taken = True

    async def _deliver(self, log: MetadataLog, reply: Reply) -> None:
        answer = self._answers.pop(reply.token, None)
        if answer is None:
            return
        response, read = reply.response, reply.read
        if isinstance(read, ReadLog):
            assert isinstance(response, FetchResponse)
            records = await log.read(
                read.offset, end_offset=log.end_offset, bytes_max=read.bytes_max
            )
            response = replace(response, records=records)
        elif read is not None:
            assert isinstance(response, FetchSnapshotResponse)
            data = await log.read_snapshot(
                read.snapshot_id, position=read.position, bytes_max=read.bytes_max
            )
            response = replace(response, data=data)
        answer(response)

    def _wake_at(self, wake_ms: int) -> None:
        sequence = self._wake_sequence

        def wake() -> None:
            if sequence == self._wake_sequence and self.core is not None:
                self._take(Tick())

        self._timeline.later(self.clock.delay_us_until(wake_ms), wake)

    # --- snapshots ----------------------------------------------------------------------------

    def write_snapshot(self) -> None:
        """Write a snapshot of what is committed here, beside everything else."""
        if self.core is None or self._log is None:
            return
        offset = self._applied_end
        latest = self._log.latest_snapshot_id
        if offset > self.mirror.start_offset and (latest is None or offset > latest.offset):
            self.snapshot_count += 1
            self._spawn(self._write_snapshot(offset))

    async def _write_snapshot(self, offset: Offset) -> None:
        log = self._log
        assert log is not None
        entries = self.mirror.entries[:offset]
        snapshot_id = OffsetAndEpoch(offset, entries[-1].epoch)
        await log.write_snapshot(snapshot_id, self._snapshot_batches(snapshot_id, entries))
        self.mirror.follow(log)

    def _snapshot_batches(self, snapshot_id: OffsetAndEpoch, entries: list[Entry]) -> list[bytes]:
        opening = opening_batch(
            self.identity.voters, last_contained_timestamp_ms=1, leader_epoch=snapshot_id.epoch
        )
        builder = BatchBuilder()
        builder.append(1, None, digest_of(entries).encode())
        base = parse_header(opening).end_offset
        data = builder.build(base_offset=base, leader_epoch=snapshot_id.epoch)
        end = Offset(base + 1)
        footer = footer_batch(base_offset=end, timestamp_ms=1, leader_epoch=snapshot_id.epoch)
        return [opening, data, footer]

    async def _install(self, log: MetadataLog, snapshot_id: OffsetAndEpoch) -> None:
        await self._check_snapshot(log, snapshot_id)
        self.mirror.entries = self._invariants.committed[: snapshot_id.offset]

    async def _check_snapshot(self, log: MetadataLog, snapshot_id: OffsetAndEpoch) -> None:
        """SnapshotHoldsCommitted: it says of what it stands for what was committed there."""
        data = await log.read_whole_snapshot(snapshot_id)
        said = [
            _text(record.value)
            for at, header in batches(data)
            if not header.is_control
            for record in scan(data, at, header)
        ]
        committed = self._invariants.committed[: snapshot_id.offset]
        if len(committed) < snapshot_id.offset or said != [digest_of(committed)]:
            raise Violation(
                "SnapshotHoldsCommitted", f"{self.node_id} was given {snapshot_id} with other data"
            )
