"""Interface of the controller to this node's member of the quorum (`node/quorum_driver`)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record
from ottla.model.ids import Epoch, Offset
from ottla.node.quorum.snapshot_report import SnapshotReport
from ottla.raft.messages import Request, Response
from ottla.raft.progress import QuorumProgress
from ottla.raft.voters import QuorumIdentity


class Quorum(Protocol):
    """Interface of this node's quorum member: a replicated log with majority commit, and the
    metadata image of its committed records."""

    @property
    def identity(self) -> QuorumIdentity:
        """Identity of this node in the quorum, with the latest voter set of its log."""
        ...

    @property
    def image(self) -> MetadataImage:
        """Metadata image of all committed records that this node has loaded."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Offset after the last record of this node's metadata log. While this node leads, only
        `append` and changes of the voters change it."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """Offset after the last metadata record that is known to be committed."""
        ...

    @property
    def applied_end_offset(self) -> Offset:
        """Offset after the last record that the metadata image contains."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems between the quorum's voters that retries cannot resolve, one sentence each."""
        ...

    @property
    def disk_problems(self) -> tuple[str, ...]:
        """Problems of the disk of this node's metadata log, one sentence each."""
        ...

    @property
    def disk_warnings(self) -> tuple[str, ...]:
        """Predicted disk problems of this node's metadata log, one sentence each."""
        ...

    def on_leadership(self, listener: Callable[[Epoch | None], None]) -> None:
        """Add a listener, which is called with the epoch in which this node may act as the quorum's
        leader.

        It is called with None when this node is no longer the leader.
        """
        ...

    def batch_of(self, records: Sequence[Record]) -> bytes:
        """Return metadata records encoded as one batch of the log. May be called in any thread.

        Raises RefusedError(POLICY_VIOLATION) if the batch is too large.
        """
        ...

    async def append(self, batch: bytes, epoch: Epoch, *, at: Offset | None = None) -> Offset:
        """Append one batch to the metadata log and return the offset of its last record.

        Raises RefusedError(NOT_LEADER_OR_FOLLOWER) if this node is not the leader of `epoch`, or if
        the first record would not have the offset `at`.
        """
        ...

    async def wait_committed(self, offset: Offset, epoch: Epoch) -> None:
        """Wait until a metadata record that this node has appended is committed.

        Raises RefusedError(NOT_LEADER_OR_FOLLOWER) if this node's leadership ends first.
        """
        ...

    async def answer(self, request: Request) -> Response:
        """Return this node's response to a request of another quorum member, such as a change of
        the voters.

        Raises RefusedError if this node is stopping.
        """
        ...

    async def report_snapshot(self, *, writes: bool) -> SnapshotReport:
        """Return a report on a snapshot of this node's metadata image. If `writes`, the snapshot is
        written first.

        Raises RefusedError(KAFKA_STORAGE_ERROR) if the snapshot cannot be written.
        """
        ...

    def describe(self) -> QuorumProgress | None:
        """Return the progress of all replicas of the metadata log, or None if this node is not the
        leader."""
        ...
