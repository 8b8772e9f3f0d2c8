"""A decision of the controller: records to append, the resulting metadata image, and the reply once
the records are committed.

The image of a decision is the next speculative image. Records are applied to it when the decision
is made, and never again. Records that are not valid for the image are therefore never written. The
committed image, in contrast, is changed only when records are replayed from the log.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from ottla.controller.mutation_quotas import NO_CHARGE, MutationCharge
from ottla.controller.requester import A_BROKER, Requester
from ottla.metadata import fold
from ottla.metadata.image import ControllerRegistration, MetadataImage
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.values import frozen
from ottla.raft.messages import VoterChangeRequest
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest

R = TypeVar("R")
S = TypeVar("S")

APPEND_RECORDS_MAX = 10_000
"""Maximum number of records in one append to the metadata log (KRaft's limit). A larger value
blocks the event loop, and therefore heartbeats, for longer. With a smaller value, more batches are
written and flushed."""


@frozen
class Decision(Generic[R]):
    """Decision of the controller: metadata records in the order in which they must be applied, the
    reply, and the resulting metadata image.

    A decision without records needs no commit, so its reply may be sent at once.
    """

    records: tuple[Record, ...]
    reply: R
    image: MetadataImage
    """Metadata image after the records of the decision are applied."""
    is_atomic: bool = False
    """True if all records of the decision must take effect together.

    If False, the cluster works after any prefix of the records. If a controller crashes between two
    appends, the next controller completes the decision.
    """
    voter_change: VoterChangeRequest | None = None
    """Change of the voter set that the quorum makes after the decision, or None. The quorum's
    response replaces `reply`."""
    snapshot_request: WriteSnapshotRequest | None = None
    """Request for a metadata snapshot that this node writes after the decision, or None. The report
    about the snapshot replaces `reply`."""

    def appends(self, records_max: int = APPEND_RECORDS_MAX) -> Iterator[tuple[Record, ...]]:
        """Yield the records of the decision in groups of at most `records_max`; each group is
        written in one append."""
        if self.is_atomic:
            records_max = max(1, len(self.records))
        for start in range(0, len(self.records), records_max):
            yield self.records[start : start + records_max]

    def with_reply(self, reply: S) -> "Decision[S]":
        """Return a copy of this decision with another reply to the sender of the request."""
        return Decision(
            self.records,
            reply,
            self.image,
            self.is_atomic,
            self.voter_change,
            self.snapshot_request,
        )


def decided(
    image: MetadataImage, records: Iterable[Record], reply: R, *, is_atomic: bool = False
) -> Decision[R]:
    """Return the decision to append `records` to the metadata log. `image` is the metadata image
    before the records are applied."""
    draft = Draft(image)
    draft.add(records)
    return draft.decision(reply, is_atomic=is_atomic)


class Draft:
    """A decision of the controller in progress. It is made in steps, and each step sees the changes
    of the earlier ones.

    Added records are applied together, when the image is next requested.
    """

    __slots__ = ("_folded_count", "_image", "records")

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._folded_count = 0
        self.records: list[Record] = []

    @property
    def image(self) -> MetadataImage:
        """The initial metadata image with all records that were added to the draft so far.

        Raises CorruptDataError if the records do not fit the image.
        """
        if self._folded_count < len(self.records):
            self._image = fold.apply_all(self._image, self.records[self._folded_count :])
            self._folded_count = len(self.records)
        return self._image

    def add(self, records: Iterable[Record]) -> None:
        """Add metadata records to the draft of a decision. The records must be valid for the
        draft's image."""
        self.records.extend(records)

    def decision(self, reply: R, *, is_atomic: bool = False) -> Decision[R]:
        """Return the decision to append all metadata records that were added to the draft."""
        return Decision(tuple(self.records), reply, self.image, is_atomic)


@frozen(kw_only=True)
class ReplicaStatus:
    """Progress of one replica of the metadata log (voter or observer), as reported by the leader of
    the quorum."""

    id: NodeId
    directory_id: UUID
    end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Endpoints of the replica's node as (listener name, host, port). Known only for voters."""


@frozen(kw_only=True)
class QuorumStatus:
    """State of the metadata quorum and its replicas, as reported by the quorum's leader."""

    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    problems: tuple[str, ...] = ()
    """Permanent problems between the quorum's voters, or of the leader's disk, one sentence
    each."""
    warnings: tuple[str, ...] = ()
    """Predicted problems of the quorum, one sentence each."""


@frozen(kw_only=True)
class Context:
    """Inputs of a controller's decision besides the metadata image and the request."""

    config: ControllerConfig
    rng: Rng
    quorum_status: Callable[[], QuorumStatus]
    charge: MutationCharge = NO_CHARGE
    """Charge of the request to its client's quota, for the partitions that it creates and
    deletes."""
    requester: Requester = A_BROKER
    """The client that sent the request, and its permissions."""
    wall_ms: Callable[[], int] = lambda: 0
    """Wall time in ms since 1970."""
    api_version: int = 0
    """Version of the API in which the client has sent the request."""
    cluster_id: str = ""
    """Id of this cluster, to be compared with the cluster id in a request."""
    controllers: tuple[ControllerRegistration, ...] = ()
    """Registrations of all controllers of the cluster, active or not."""
    voter_ids: tuple[NodeId, ...] = ()
    """Ids of the quorum's voters. A change of a feature requires that all of them are
    registered."""


Decide: TypeAlias = Callable[[MetadataImage, Context, Any], Decision[Any]]
"""Function that decides a client's request of one forwarded API on the speculative metadata image.

Raises RefusedError if the whole request is refused.
"""


def request_uuid(data: bytes) -> UUID:
    """Return a UUID that a broker's request contains as bytes. Raises RefusedError if `data` does
    not have 16 bytes."""
    if len(data) != 16:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"A uuid has 16 bytes, not {len(data)}")
    return UUID(bytes=data)
