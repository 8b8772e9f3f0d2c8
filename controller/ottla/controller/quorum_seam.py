"""What the controller needs of this node's member of the quorum (`node/quorum_driver`)."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record
from ottla.model.ids import Epoch, Offset
from ottla.raft.progress import QuorumProgress


class Quorum(Protocol):
    """A log that a majority agrees on, and the image of what is committed."""

    @property
    def image(self) -> MetadataImage:
        """Return the image of all that is committed and loaded."""
        ...

    @property
    def end_offset(self) -> Offset:
        """Return the end of the log; while this node leads only `append` moves it."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """Return the end of what is known to be committed."""
        ...

    @property
    def applied_end_offset(self) -> Offset:
        """Return one past the last record in the image."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what keeps voters apart for good, a sentence each."""
        ...

    @property
    def disk_problems(self) -> tuple[str, ...]:
        """What is wrong with the disk of this node's metadata log, a sentence each."""
        ...

    @property
    def disk_warnings(self) -> tuple[str, ...]:
        """What will be wrong with it unless an operator acts."""
        ...

    def on_leadership(self, listener: Callable[[Epoch | None], None]) -> None:
        """Call `listener` with the epoch when this node may act as leader, None when no longer."""
        ...

    def batch_of(self, records: Sequence[Record]) -> bytes:
        """Return the records as one batch, in any thread; POLICY_VIOLATION when it is too big."""
        ...

    async def append(self, batch: bytes, epoch: Epoch) -> Offset:
        """Append one batch and return its last offset; NOT_LEADER_OR_FOLLOWER out of `epoch`."""
        ...

    async def wait_committed(self, offset: Offset, epoch: Epoch) -> None:
        """Wait for a majority; NOT_LEADER_OR_FOLLOWER when leadership ends first."""
        ...

    def describe(self) -> QuorumProgress | None:
        """Return who has got how far; None unless this node leads."""
        ...
