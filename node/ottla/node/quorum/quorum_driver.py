"""One member of the quorum: raft's core, with the real log, network and time.

Voters and observers use the same class. The core processes one event at a time, under a lock, and
its effects are performed in the order of `raft/performer.py`. Two activities run in parallel: fsync
(one fsync covers many appends), and the loading of committed records. The caller that opened the
member owns its tasks. If the disk fails, all tasks end, because a replica that cannot store records
must not send responses.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

import trio

from ottla.metadata.change_log import ChangeLog
from ottla.metadata.features import (
    KRAFT_VERSION,
    KRAFT_VERSION_OF_VOTER_CHANGES,
    OTTLA_VERSION,
    OTTLA_VERSION_OF_CONTROLLERS,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import Publisher
from ottla.metadata.records import Record
from ottla.model import log_events
from ottla.model.amounts import amount
from ottla.model.background_driver import keep_running
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Clock, Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.address_probe import Probe, ProbeResult, probe_nothing
from ottla.node.quorum.image_loader_driver import ImageLoader
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.peer_troubles import PeerTroubles
from ottla.node.quorum.quorum_meter import QuorumMeter
from ottla.node.quorum.quorum_ports_driver import NO_ROOM_PAUSE_MS, QuorumPorts, stopping
from ottla.node.quorum.record_batches import batch_of
from ottla.node.quorum.reserved_space import RESERVED_BYTES
from ottla.node.quorum.snapshot_driver import SnapshotWriter
from ottla.node.quorum.snapshot_report import SnapshotReport
from ottla.node.quorum_files.member_files import open_files
from ottla.node.quorum_files.voter_opening import missing
from ottla.raft.effects import OutgoingRequest, RejectedResponse, RoleChange
from ottla.raft.events import (
    AppendRequested,
    Event,
    LeaderRefused,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Tick,
)
from ottla.raft.messages import (
    FetchRequest,
    FetchResponse,
    Request,
    Response,
)
from ottla.raft.performer import take_step
from ottla.raft.progress import QuorumProgress
from ottla.raft.quorum import QuorumCore
from ottla.raft.transitions import Role, Standing
from ottla.raft.voter_checkpoint import VoterCheckpoint, VoterVerdict
from ottla.raft.voters import QuorumIdentity
from ottla.rpc.quorum_client import QuorumClient
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.directories.free_space import OF_METADATA, FreeSpaceLevel
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.disk.disk_seam import Disk

_LOGGER = logging.getLogger(__name__)

RESERVE_INTERVAL_MS = 10_000
"""Interval in ms between attempts to reserve disk space for the metadata log. When the disk is
full, the log grows into the reserved space."""

HAND_OVER_CHECK_MS = 50
"""Interval in ms at which a stopping quorum member checks whether the other members can work
without it."""

LeadershipListener = Callable[[Epoch | None], None]


class QuorumMember:
    """Member of the quorum that this node runs, as a voter or observer, with the metadata image of
    the committed records."""

    def __init__(
        self,
        *,
        log: MetadataLog,
        core: QuorumCore,
        config: QuorumConfig,
        client: QuorumClient,
        troubles: PeerTroubles,
        clock: Clock,
        nursery: trio.Nursery,
        free_space: FreeSpaceMonitor,
        probe: Probe,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self.free_space = free_space
        """Monitor of the free space on the disk of the metadata log."""
        self._log = log
        self._core = core
        self._config = config
        self._client = client
        self._troubles = troubles
        self._clock = clock
        self._nursery = nursery
        self._probe = probe
        self._is_probing = False
        self._gone: tuple[NodeId, Epoch] | None = None
        """Id and epoch of the last quorum leader whose process was found to have ended; None if no
        such leader was found."""
        self._errors = errors or UnexpectedErrors()
        log.when_disk_full(free_space.note_refused)
        self._loader = ImageLoader(log, self._errors)
        self._snapshots = SnapshotWriter(log, self._loader, config, clock)
        self._loader.delay_new_publishers(lambda: self.is_caught_up)
        self._loader.on_applied = self._on_applied
        self._lock = trio.Lock()
        self._progress = trio.Event()
        self._leader_end_offset: Offset | None = None
        """Latest high watermark that the quorum's leader has sent; None before the first one."""
        self._active_epoch: Epoch | None = None
        self._warned_of: str | None = None
        """Last logged warning about another directory id of this controller
        (`other_directory_problem`); None without a warning."""
        self._listeners: list[LeadershipListener] = []
        self.meter = QuorumMeter(clock.monotonic_ms())
        """Meter of the quorum's rates and latencies in the last minute."""
        self._ports = QuorumPorts(
            log,
            clock=clock,
            meter=self.meter,
            is_leader=lambda: self._core.is_leader,
            send=lambda outgoing: nursery.start_soon(self._ask, outgoing),
            commit=self._commit,
            reject_response=self._reject_response,
            change_role=self._change_role,
            fail=self._fail,
        )

    # --- state --------------------------------------------------------------------------------

    @property
    def identity(self) -> QuorumIdentity:
        """Identity of this node in the quorum, with the latest voter set of its log."""
        return self._core.identity

    @property
    def image(self) -> MetadataImage:
        """Metadata image of all committed records that this node has loaded."""
        return self._loader.image

    @property
    def epoch(self) -> Epoch:
        """Highest leader epoch of the quorum that this node has seen."""
        return self._core.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """Node id of the quorum's leader in the highest epoch, or None if the leader is unknown."""
        return self._core.leader_id

    @property
    def is_leader(self) -> bool:
        """True if this node is the leader of the quorum. `active_epoch` shows whether the leader
        has also loaded all earlier records."""
        return self._core.is_leader

    @property
    def role_name(self) -> str:
        """Kafka's name for the role of this node in the quorum, such as leader or follower."""
        role = self._core.role
        if role is Role.FOLLOWER and not self.identity.is_voter:
            return "observer"
        return role.value

    @property
    def voted_id(self) -> NodeId | None:
        """Node id of the voter for which this node has voted in the highest epoch, or None without
        a vote."""
        voted = self._core.election_state.voted
        return None if voted is None else voted.id

    @property
    def active_epoch(self) -> Epoch | None:
        """Epoch in which this node is the leader of the quorum and has loaded all earlier records.
        None if this node is not the leader, or has not loaded these records yet."""
        return self._active_epoch

    @property
    def high_watermark(self) -> Offset:
        """Offset after the last record of the metadata log that is known to be committed."""
        return self._core.high_watermark

    @property
    def end_offset(self) -> Offset:
        """Offset after the last record in this node's metadata log. While this node is the leader,
        only `append` and changes of the voters change it."""
        return self._log.end_offset

    @property
    def start_offset(self) -> Offset:
        """First offset of this node's metadata log: 0, or the end of a snapshot."""
        return self._log.start_offset

    @property
    def latest_snapshot_offset(self) -> Offset:
        """End offset of the latest metadata snapshot; 0 without a snapshot."""
        latest = self._log.latest_snapshot_id
        return Offset(0) if latest is None else latest.offset

    @property
    def applied_end_offset(self) -> Offset:
        """Offset after the last metadata record whose image this node's publishers have
        received."""
        return self._loader.applied_end_offset

    @property
    def is_caught_up(self) -> bool:
        """True if this node's metadata image contains all records that the quorum's leader has
        reported as committed.

        A new leader does not know which records are committed until a record of its own epoch is
        committed (raft paper, 5.4.2). Until the image contains such a record, the leader's high
        watermark may be too low.
        """
        if self._core.is_leader:
            return self._active_epoch is not None
        if self._leader_end_offset is None or self.image.provenance.epoch != self._core.epoch:
            return False
        return self._loader.applied_end_offset >= self._leader_end_offset

    @property
    def problems(self) -> tuple[str, ...]:
        """Descriptions of problems that prevent this node from participating in the quorum and that
        retries cannot resolve."""
        other = other_directory_problem(self.identity)
        if other is not None:
            return (other, *self._problems)
        if self._core.standing is not Standing.FULL and self._log.promises is not None:
            return (self._does_not_vote(self._log.promises.checkpoint), *self._problems)
        return self._problems

    @property
    def voter_state(self) -> tuple[Standing, VoterVerdict | None]:
        """Standing of this node as a voter (whether it may vote), and the verdict whether its files
        were complete at its start. The verdict is None for an observer."""
        return self._core.standing, self._log.found

    def _does_not_vote(self, checkpoint: VoterCheckpoint) -> str:
        return self._named(
            f"it neither votes nor may lead before it has caught up: {missing(checkpoint)}"
        )

    @property
    def _problems(self) -> tuple[str, ...]:
        if self.free_space.known.state is not FreeSpaceLevel.FULL:
            return self._troubles.problems
        left, all_of_it = amount(self.reserved_bytes), amount(RESERVED_BYTES)
        kept = f"{left} of {all_of_it} of reserved.space are left for the metadata log"
        return (*self._troubles.problems, kept)

    @property
    def disk_problems(self) -> tuple[str, ...]:
        """Descriptions of present problems with the disk of this node's metadata log."""
        return tuple(self._named(text) for text in self.free_space.report().problems)

    @property
    def disk_warnings(self) -> tuple[str, ...]:
        """Warnings of problems with the metadata log's disk that are likely to occur soon."""
        return tuple(self._named(text) for text in self.free_space.report().warnings)

    def _named(self, text: str) -> str:
        return f"controller {self.identity.node_id}: {text}"

    @property
    def reserved_bytes(self) -> int:
        """Number of bytes left in the disk space that is reserved for the metadata log if its disk
        is full."""
        return self._log.reserved_bytes

    def describe(self) -> QuorumProgress | None:
        """Return the progress of all replicas of the metadata log, or None if this node is not the
        leader."""
        return self._core.describe()

    async def wait_caught_up(self) -> None:
        """Wait until this node's metadata image contains all records that the quorum's leader has
        reported as committed."""
        while not self.is_caught_up:
            await self._progress.wait()

    async def wait_applied(self, end_offset: Offset) -> None:
        """Wait until a metadata image with all records before `end_offset` is published on this
        node."""
        await self._loader.wait_applied(end_offset)

    async def read_applied(self, offset: Offset, *, bytes_max: int) -> bytes:
        """Return whole batches of metadata records that this node has applied, from an offset on,
        up to `bytes_max` bytes. The first batch is returned even if it is larger. Returns b"" if
        the leader's snapshot has just replaced the log."""
        end_offset = min(self._loader.applied_end_offset, self._log.end_offset)
        if offset < self._log.start_offset:
            return b""
        return await self._log.read(offset, end_offset=end_offset, bytes_max=bytes_max)

    # --- requests ----------------------------------------------------------------------------

    def add_publisher(self, publisher: Publisher) -> None:
        """Add a metadata publisher. After this node has caught up, the publisher gets the whole
        metadata image, and then every change in order."""
        self._loader.add_publisher(publisher)

    def on_leadership(self, listener: LeadershipListener) -> None:
        """Add a listener, which is called with the epoch in which this node may act as leader of
        the quorum.

        The listener is called with None when this node is no longer the leader.
        """
        self._listeners.append(listener)
        if self._active_epoch is not None:
            listener(self._active_epoch)

    def batch_of(self, records: Sequence[Record]) -> bytes:
        """Encode metadata records as one batch of the metadata log. May be called in any thread.

        Raises RefusedError(POLICY_VIOLATION) if the batch is too large.
        """
        return batch_of(records, timestamp_ms=self._clock.wall_ms())

    async def append(self, batch: bytes, epoch: Epoch, *, at: Offset | None = None) -> Offset:
        """Append one batch of records to the metadata log. Returns the offset of the last record,
        without waiting until it is committed.

        Raises RefusedError(NOT_LEADER_OR_FOLLOWER), and appends nothing, if this node is not the
        leader of `epoch`. The same error is raised if the first record would not have the offset
        `at`, because the voters have changed.
        """
        async with self._lock:
            if at is not None and self._log.end_offset != at:
                raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the voters have changed")
            await self._step_locked(AppendRequested(epoch=epoch, records=batch))
            if self._log.is_out_of_space:
                raise RefusedError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "the disk of the metadata log is full"
                )
            return Offset(self._log.end_offset - 1)

    async def wait_committed(self, offset: Offset, epoch: Epoch) -> None:
        """Wait until the metadata record at `offset`, which this node has appended as leader in
        `epoch`, is committed.

        Raises RefusedError(NOT_LEADER_OR_FOLLOWER) if this node loses its leadership first; the
        outcome is then unknown.
        """
        while self._core.epoch == epoch:
            if self._core.high_watermark > offset:
                return
            if not self._core.is_leader:
                break
            await self._progress.wait()
        raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def answer(self, request: Request) -> Response:
        """Return the response to a request from another quorum member. If raft's core delays its
        reply, this method waits for the reply."""
        with self._ports.awaiting() as awaited:
            await self._step(RequestReceived(token=awaited.token, request=request))
            await awaited.arrived.wait()
        return await self._ports.response_of(awaited)

    async def write_snapshot(self) -> None:
        """Write a snapshot of this node's metadata image now, even if no snapshot is due."""
        await self._snapshots.write()

    async def report_snapshot(self, *, writes: bool) -> SnapshotReport:
        """Return a report on the snapshot of this node's metadata image. If `writes` is True, the
        snapshot is written first.

        Raises RefusedError(KAFKA_STORAGE_ERROR) if the disk has no space for the snapshot.
        """
        if writes:
            await self._snapshots.order()
        latest = self._log.latest_snapshot_id
        is_written = writes and latest is not None
        size_bytes = self._log.snapshot_size_bytes(latest) if is_written and latest else None
        return SnapshotReport(
            id=latest if is_written and latest else self.image.provenance.end,
            size_bytes=-1 if size_bytes is None else size_bytes,
            latest_end_offset=self.latest_snapshot_offset,
            log_start_offset=self.start_offset,
        )

    async def resign(self, epoch: Epoch) -> None:
        """Resign as the quorum's leader in `epoch`. Does nothing if this node is not the leader of
        that epoch."""
        await self._step(ResignRequested(epoch=epoch))

    async def hand_over(self, *, patience_ms: int) -> None:
        """Announce that this node is stopping, and wait until the other quorum members can work
        without it.

        Waits at most `patience_ms` milliseconds.
        """
        await self._step(ShutdownRequested())
        with trio.move_on_after(patience_ms / 1000):
            while not self._core.is_handed_over:
                with trio.move_on_after(HAND_OVER_CHECK_MS / 1000):
                    await self._progress.wait()

    async def stop(self) -> None:
        """Leave the quorum, and refuse all further requests.

        Waits until raft has processed its current event, because this event may start tasks in this
        member's nursery.
        """
        self._ports.is_stopped = True
        with trio.CancelScope(shield=True):
            async with self._lock:
                pass

    # --- tasks -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the latest metadata snapshot, then start the tasks of this quorum member."""
        await self._loader.load_latest_snapshot()
        tasks = [self._run_ticks, self._run_flushes, self._loader.run]
        if self._log.promises is not None:
            tasks.append(self._run_promises)
        for task in tasks:
            self._nursery.start_soon(task)
        for name, work in (
            ("snapshots of the metadata", self._snapshots.run),
            ("space reserved for the metadata", self._keep_reserve),
        ):
            self._nursery.start_soon(keep_running, name, work, self._errors)
        await self._step(Tick())

    async def _run_ticks(self) -> None:
        while True:
            await self._ports.tick_due()
            await self._step_of_ours(Tick())

    async def _run_flushes(self) -> None:
        while True:
            end_offset = await self._ports.flushed(self._config.append_linger_ms)
            await self._step_of_ours(LogFlushed(end_offset=end_offset))

    async def _run_promises(self) -> None:
        while True:
            await self._ports.promises_written()
            if self._log.promises is not None:
                await self._log.promises.sync()

    async def _keep_reserve(self) -> None:
        while True:
            await self._log.keep_reserve()
            await trio.sleep(RESERVE_INTERVAL_MS / 1000)

    async def _ask(self, outgoing: OutgoingRequest) -> None:
        event: Event
        may_be_gone = False
        if self._log.is_out_of_space and isinstance(outgoing.request, FetchRequest):
            await trio.sleep(NO_ROOM_PAUSE_MS / 1000)
        try:
            response = await self._client.ask(
                outgoing.endpoints, outgoing.request, timeout_ms=outgoing.timeout_ms
            )
        except (RefusedError, ProtocolError) as error:
            why = error.message if isinstance(error, RefusedError) else str(error)
            trouble = self._troubles.on_silence(outgoing.to, why, self._now_ms())
            event = RequestFailed(request_id=outgoing.request_id)
            may_be_gone = getattr(error, "code", None) is ErrorCode.NETWORK_EXCEPTION
        else:
            trouble = self._troubles.on_answer(
                outgoing.to, response.error, self._clock.monotonic_ms()
            )
            event = ResponseReceived(request_id=outgoing.request_id, response=response)
        self._warn_of(trouble)
        await self._step_of_ours(event)
        if isinstance(event, ResponseReceived):
            self._note_leader_end(event.response)
        elif may_be_gone and isinstance(outgoing.request, FetchRequest):
            await self._look_for_leader(outgoing)

    async def _look_for_leader(self, failed: OutgoingRequest) -> None:
        """Probe whether the process of the quorum's leader has ended, after a fetch request to the
        leader has failed."""
        leader_id, epoch = self._core.leader_id, self._core.epoch
        if not self.identity.is_voter or failed.to != leader_id or self._is_probing:
            return
        self._is_probing = True
        try:
            probed = [await self._probe(one.host, one.port) for one in failed.endpoints]
        finally:
            self._is_probing = False
        at = failed.endpoints[0]
        if set(probed) == {ProbeResult.REFUSED}:
            if self._gone != (leader_id, epoch):
                self._gone = (leader_id, epoch)
                _LOGGER.info(
                    "controller %s, which led epoch %s, is gone: %s:%s refuses connections",
                    leader_id,
                    epoch,
                    at.host,
                    at.port,
                    extra=log_events.event("quorum.gone", leader=leader_id, epoch=epoch),
                )
            await self._step_of_ours(LeaderRefused(leader_id=failed.to, epoch=epoch))

    def _warn_of(self, trouble: str | None) -> None:
        if trouble is not None:
            _LOGGER.warning("%s", trouble)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _note_leader_end(self, response: Response) -> None:
        if isinstance(response, FetchResponse) and response.error is ErrorCode.NONE:
            self._leader_end_offset = response.high_watermark
            self._on_progress()

    # --- steps and their effects -------------------------------------------------------------

    async def _step(self, event: Event) -> None:
        async with self._lock:
            await self._step_locked(event)

    async def _step_of_ours(self, event: Event) -> None:
        """Process an event for raft that one of this member's own tasks has detected. Does nothing
        if the member is stopping.

        A task that has already acquired the member's lock is not cancelled until the event is
        processed.
        """
        async with self._lock:
            if self._ports.is_stopped:
                return
            try:
                await self._step_locked(event)
            except RefusedError:
                if not self._ports.is_stopped:
                    raise

    async def _step_locked(self, event: Event) -> None:
        if self._ports.is_stopped:
            raise stopping()
        with trio.CancelScope(shield=True):
            await take_step(self._core, event, self._now_ms(), self._ports)

    def _fail(self, error: Exception) -> NoReturn:
        """End this quorum member, and with it the process, because of an error in any task.

        The error is raised in the member's own nursery, so that no request handler or background
        task catches it.
        """
        self._ports.is_stopped = True
        self._nursery.start_soon(_raise, error)
        raise stopping() from error

    def _commit(self, high_watermark: Offset) -> None:
        self.meter.on_high_watermark(high_watermark, self._now_ms())
        self._log.note_high_watermark(high_watermark)
        self._loader.commit(high_watermark)
        self._on_progress()

    def _reject_response(self, rejection: RejectedResponse) -> None:
        self._warn_of(
            self._troubles.on_rejected_response(rejection.node_id, rejection.why, self._now_ms())
        )

    def _change_role(self, change: RoleChange) -> None:
        role, leader = change.role.name.lower(), change.leader_id
        _LOGGER.info(
            "quorum role %s in epoch %s, %s",
            role,
            change.epoch,
            "no leader is known" if leader is None else f"controller {leader} leads",
            extra=log_events.event("quorum.role", role=role, epoch=change.epoch, leader=leader),
        )
        self._leader_end_offset = None
        self.meter.on_role(
            change.role, knows_leader=change.leader_id is not None, now_ms=self._now_ms()
        )
        self._settle_leadership()
        self._on_progress()

    def _warn_of_other_directory(self) -> None:
        """Log once that the quorum's voter set contains this controller's id with another directory
        id."""
        problem = other_directory_problem(self.identity)
        if problem is not None and problem != self._warned_of:
            _LOGGER.warning("%s", problem)
        self._warned_of = problem

    def _on_applied(self) -> None:
        if self.identity.are_voters_fixed and may_voters_change(self.image):
            self._core.allow_voter_changes()
        self._warn_of_other_directory()
        self._settle_leadership()
        self._on_progress()

    def _on_progress(self) -> None:
        progress, self._progress = self._progress, trio.Event()
        progress.set()
        self._loader.wake()

    def _settle_leadership(self) -> None:
        """Notify the leadership listeners if this node has become the active leader of the quorum,
        or is no longer the active leader."""
        start = self._core.epoch_start_offset
        is_active = start is not None and self._loader.applied_end_offset > start
        epoch = self._core.epoch if is_active else None
        if epoch == self._active_epoch:
            return
        if epoch is not None and self._active_epoch is not None:
            self._notify(None)
        self._notify(epoch)

    def _notify(self, epoch: Epoch | None) -> None:
        self._active_epoch = epoch
        for listener in self._listeners:
            listener(epoch)


def may_voters_change(image: MetadataImage) -> bool:
    """Return whether the finalized feature levels allow changes of the quorum's voter set. As in
    Kafka, the voters are fixed at kraft.version 0."""
    levels = image.features
    return (
        levels.get(OTTLA_VERSION, 0) >= OTTLA_VERSION_OF_CONTROLLERS
        and levels.get(KRAFT_VERSION, 0) >= KRAFT_VERSION_OF_VOTER_CHANGES
    )


def other_directory_problem(identity: QuorumIdentity) -> str | None:
    """Return a problem description if the quorum's voter set contains this controller's id with
    another directory id. Returns None otherwise."""
    known = identity.voters.get(identity.node_id)
    if not identity.is_controller or known is None or known.is_key(identity.key):
        return None
    lost, own = uuid_to_text(known.directory_id), uuid_to_text(identity.directory_id)
    return (
        f"controller {identity.node_id} follows without a vote: the voters have its id with the"
        f" directory {lost}, and its own is {own}; bring its old directory back, or remove the old"
        " voter and add this one (`ottla quorum remove`, `ottla quorum add`)"
    )


async def _raise(error: Exception) -> None:
    raise error


@asynccontextmanager
async def open_quorum_member(
    *,
    disk: Disk,
    metadata_log_dir: str,
    identity: QuorumIdentity,
    config: QuorumConfig,
    rpc: Rpc,
    clock: Clock,
    rng: Rng,
    errors: UnexpectedErrors | None = None,
    disks: DiskConfig | None = None,
    free_space: FreeSpaceMonitor | None = None,
    probe: Probe = probe_nothing,
) -> AsyncIterator[QuorumMember]:
    """Run this node's member of the quorum, a voter or an observer, for the duration of the block,
    and yield the member.

    With `probe`, a voter detects the end of the leader's process earlier than by an election
    timeout. `free_space` is a monitor of the directory's free space that the caller already runs.
    By default, this member runs a monitor itself, with the bounds in `disks`. If the block ends
    with an error, the log is left as after a crash, and is recovered at the next start.
    """
    log, election = await open_files(disk, metadata_log_dir, identity, config=config, clock=clock)
    own_monitor = None
    if free_space is None:
        free_space = own_monitor = FreeSpaceMonitor(
            disk, metadata_log_dir, disks or DiskConfig(), OF_METADATA
        )
    try:
        core = QuorumCore(config, identity, log, election, rng, clock.monotonic_ms())
        async with trio.open_nursery() as nursery:
            member = QuorumMember(
                log=log,
                core=core,
                config=config,
                client=QuorumClient(rpc),
                troubles=PeerTroubles(lambda: core.identity),
                clock=clock,
                nursery=nursery,
                free_space=free_space,
                probe=probe,
                errors=errors,
            )
            if own_monitor is not None:
                name = "free space of the metadata"
                nursery.start_soon(
                    keep_running, name, own_monitor.run, errors or UnexpectedErrors()
                )
            member.add_publisher(ChangeLog(identity.node_id, lambda: member.is_leader))
            await member.start()
            try:
                yield member
            finally:
                await member.stop()
            nursery.cancel_scope.cancel()
    except BaseException:
        log.abandon()
        raise
    with trio.CancelScope(shield=True):
        await log.close()
