"""Effects of one step of the quorum core (the actions that the driver must take). Their order is
fixed, and `performer.perform` performs them in this order.

That order is the order of the fields of `Effects`:

1. **append**: truncate, then append (or write and install the snapshot's bytes);
2. **fsync**: write `quorum-state` atomically and durably, then flush the log;
3. **send**: responses, then requests;
4. **apply**: pass committed entries to the state machine, then report the new role.

PersistedBeforeAnswered: messages of phase 3 are sent only after `persist_election` of phase 2 is on
disk. The core reads its `LogView` as if truncate, append and persist of the previous step were
done. No event is therefore processed before they have ended. Only the flush of the log may continue
in the background: `LogFlushed` reports its end, and the core treats no byte as flushed before that.
"""

from dataclasses import dataclass, field, replace

from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    Records,
    Request,
    Response,
)
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey, VoterEndpoint, VoterSet


@frozen(kw_only=True)
class LeaderAppend:
    """Effect: append of the application's batches by the leader. The driver writes base offsets and
    the leader epoch into them."""

    leader_epoch: Epoch
    records: Records


@frozen(kw_only=True)
class LeaderChangeAppend:
    """Effect: append of the control batch that starts a leader's epoch
    (`control_records.leader_change_batch`)."""

    leader_epoch: Epoch
    leader_id: NodeId
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


@frozen(kw_only=True)
class FollowerAppend:
    """Effect: append of the leader's batches by a follower, unchanged. The base offset of the first
    batch is the log end offset.

    The driver first checks every CRC, and that no batch has a later epoch than `epoch_max`. If a
    check fails, it appends nothing; the next fetch then starts at the log end again.
    """

    records: Records
    epoch_max: Epoch
    """Epoch of the leader from which the batches were fetched. A later epoch in its log is
    impossible."""


@frozen(kw_only=True)
class VotersAppend:
    """Effect: append of a control batch with a new voter set (`control_records.voters_batch`)."""

    leader_epoch: Epoch
    voters: VoterSet


Append = LeaderAppend | LeaderChangeAppend | VotersAppend | FollowerAppend


@frozen(kw_only=True)
class SnapshotChunk:
    """Effect: write of one chunk of the leader's snapshot at `position` of the snapshot's `.part`
    file.

    A chunk at position 0 starts the file from scratch. After the chunk with `is_last`, the driver
    flushes and renames the file. It then replaces the log with an empty, flushed log that starts at
    the snapshot's end, and loads the snapshot into the state machine.
    """

    snapshot_id: OffsetAndEpoch
    position: int
    data: Records
    is_last: bool


@frozen(kw_only=True)
class ReadLog:
    """A read of the log by the driver, for the `records` of a FetchResponse. It returns complete
    batches from `offset` to the log's end, and at least one batch.

    If `offset` is the end, nothing is read. Followers also receive uncommitted entries, because
    replication commits them.
    """

    offset: Offset
    bytes_max: int


@frozen(kw_only=True)
class ReadSnapshot:
    """A read, by the driver, that fills the `data` of a FetchSnapshotResponse with a byte range of
    the snapshot's file."""

    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


@frozen(kw_only=True)
class Reply:
    """Effect: the response to the `RequestReceived` event with the same token.

    If `read` is set, the driver performs that read, and sends the result of `filled` instead.
    """

    token: int
    response: Response
    read: ReadLog | ReadSnapshot | None = None

    def filled(self, data: Records) -> "Reply":
        """Return a copy of the reply that contains the bytes that the driver has read for
        `read`."""
        response = self.response
        if isinstance(response, FetchSnapshotResponse):
            response = replace(response, data=data)
        else:
            assert isinstance(response, FetchResponse)
            response = replace(response, records=data)
        return replace(self, response=response, read=None)


@frozen(kw_only=True)
class OutgoingRequest:
    """Effect: a request to a voter. `ResponseReceived` or `RequestFailed` reports its outcome."""

    request_id: int
    to: NodeId
    endpoints: tuple[VoterEndpoint, ...]
    request: Request
    timeout_ms: int
    """Time in ms after which the request counts as failed without a response. It includes the time
    that a Fetch may wait at the leader."""


@frozen(kw_only=True)
class RoleChange:
    """Effect: report to the application that this node's role, its epoch or its known leader has
    changed."""

    role: Role
    epoch: Epoch
    leader_id: NodeId | None


@frozen(kw_only=True)
class RejectedResponse:
    """Effect: report of a response that was rejected because its content is impossible."""

    node_id: NodeId
    why: str


@dataclass(slots=True)
class Effects:
    """All effects of one step of the quorum core. The order of the fields is the order in which the
    effects are performed."""

    truncate_to: Offset | None = None
    append: list[Append] = field(default_factory=list)
    snapshot_chunk: SnapshotChunk | None = None
    persist_election: ElectionState | None = None
    flush: bool = False
    replies: list[Reply] = field(default_factory=list)
    messages: list[OutgoingRequest] = field(default_factory=list)
    high_watermark: Offset | None = None
    """The new high watermark if it changed: all entries below it are committed permanently. After
    the last chunk of a snapshot it is at least the snapshot's end, and the snapshot is already
    loaded.
    """
    role_change: RoleChange | None = None
    rejected: RejectedResponse | None = None
    """A response that the quorum core rejected as impossible, or None. It is only reported to
    operators."""
    next_wake_ms: int | None = None
    """Latest monotonic time in ms at which the driver must send the next `Tick` event, or None if
    no timer is running."""
