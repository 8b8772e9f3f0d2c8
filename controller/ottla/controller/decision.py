"""What a decision is: records to append, the image they come to, and the reply once committed.

The image of a decision is the next speculative image: the records are folded once, when they are
decided, so what would not fold is never written.  The committed image is changed by replay alone.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar
from uuid import UUID

from ottla.controller.mutation_quotas import NO_CHARGE, MutationCharge
from ottla.controller.requester import A_BROKER, Requester
from ottla.metadata import fold
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.values import frozen

R = TypeVar("R")
S = TypeVar("S")

APPEND_RECORDS_MAX = 10_000
"""Records of one append (KRaft's bound).  Higher stalls the loop, and with it heartbeats, for
longer at a time; lower writes and flushes more batches for one event."""


@frozen
class Decision(Generic[R]):
    """Records in the order they must be folded, the reply, and the image they come to.

    No records means that the reply may be given at once.
    """

    records: tuple[Record, ...]
    reply: R
    image: MetadataImage
    """The image that was decided on, with the records folded into it."""
    is_atomic: bool = False
    """Whether the records count only together.  Where they do not, each prefix of them leaves a
    cluster that works, and a controller that dies between two appends leaves nothing behind that
    the next one does not put right."""

    def appends(self, records_max: int = APPEND_RECORDS_MAX) -> Iterator[tuple[Record, ...]]:
        """Yield the records as the log takes them."""
        if self.is_atomic:
            records_max = max(1, len(self.records))
        for start in range(0, len(self.records), records_max):
            yield self.records[start : start + records_max]

    def with_reply(self, reply: S) -> "Decision[S]":
        """Return the same decision with another reply."""
        return Decision(self.records, reply, self.image, self.is_atomic)


def decided(
    image: MetadataImage, records: Iterable[Record], reply: R, *, is_atomic: bool = False
) -> Decision[R]:
    """Return the decision to append these records to an image."""
    draft = Draft(image)
    draft.add(records)
    return draft.decision(reply, is_atomic=is_atomic)


class Draft:
    """A decision in the making, of parts that build on the image of those before them.

    Records are folded when the image is asked for, all that were added since at once.
    """

    __slots__ = ("_folded_count", "_image", "records")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._folded_count = 0
        self.records: list[Record] = []

    @property
    def image(self) -> MetadataImage:
        """The image decided on, with all records so far.

        Raises CorruptDataError where they do not fit it.
        """
        if self._folded_count < len(self.records):
            self._image = fold.apply_all(self._image, self.records[self._folded_count :])
            self._folded_count = len(self.records)
        return self._image

    def add(self, records: Iterable[Record]) -> None:
        """Add records, which must fit the image."""
        self.records.extend(records)

    def decision(self, reply: R, *, is_atomic: bool = False) -> Decision[R]:
        """Return the decision to append all of it."""
        return Decision(tuple(self.records), reply, self.image, is_atomic)


@frozen(kw_only=True)
class ReplicaStatus:
    """How far one voter or observer has come, as the leader of the quorum knows it."""

    id: NodeId
    directory_id: UUID
    end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """(listener name, host, port); known for voters only."""


@frozen(kw_only=True)
class QuorumStatus:
    """What the leader of the metadata quorum tells of it."""

    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    problems: tuple[str, ...] = ()
    """What keeps voters apart for good, or the leader from its disk, a sentence each."""
    warnings: tuple[str, ...] = ()
    """What will be a problem unless an operator acts."""


@frozen(kw_only=True)
class Context:
    """What a decision may know besides the image and the request."""

    config: ControllerConfig
    rng: Rng
    quorum_status: Callable[[], QuorumStatus]
    charge: MutationCharge = NO_CHARGE
    """What the request is charged for partitions that it creates and deletes."""
    requester: Requester = A_BROKER
    """The client that asked, and what it may do."""
    wall_ms: Callable[[], int] = lambda: 0
    """The time, of the Unix epoch."""


def request_uuid(data: bytes) -> UUID:
    """Return the id in a broker's request; refuse one that has not 16 bytes."""
    if len(data) != 16:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"A uuid has 16 bytes, not {len(data)}")
    return UUID(bytes=data)
