"""What a step asks of its driver, and the one order in which `performer.perform` does it.

The order of performing is the order of the fields of `Effects`:

1. **append**: truncate, then append (or write and install the snapshot's bytes);
2. **fsync**: write `quorum-state` atomically and durably, then have the log flushed;
3. **send**: answers, then requests;
4. **apply**: hand what is committed to the state machine, then tell of the new role.

PersistedBeforeAnswered: nothing of 3 leaves before `persist_election` of 2 is on disk.
No event is stepped between a step and the end of its truncate, append and persist: the core reads
its `LogView` as if they had happened.  Only the log's flush may go on in the background; its end is
told by `Flushed`, and the core counts no byte before.
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
from ottla.raft.voters import ReplicaKey, VoterEndpoint


@frozen(kw_only=True)
class LeaderAppend:
    """Append the application's batches: base offsets and leader epoch are the driver's to patch."""

    leader_epoch: Epoch
    records: Records


@frozen(kw_only=True)
class LeaderChangeAppend:
    """Append the control batch that opens an epoch (`control_records.leader_change_batch`)."""

    leader_epoch: Epoch
    leader_id: NodeId
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


@frozen(kw_only=True)
class FollowerAppend:
    """Append the leader's batches as they are; the first one's base offset is the log's end.

    Check every CRC first, and that no batch is of a later epoch than `epoch_max`; on a lie append
    nothing.  The next fetch asks from the log's end again.
    """

    records: Records
    epoch_max: Epoch
    """The leader's: it has no entry of a later one."""


Append = LeaderAppend | LeaderChangeAppend | FollowerAppend


@frozen(kw_only=True)
class SnapshotChunk:
    """Write bytes of the leader's snapshot at `position` of its `.part` file.

    Position 0 starts the file again.  With `is_last` the driver fsyncs and renames it, empties the
    log to start (and be flushed) at the snapshot's end, and loads it into the state machine.
    """

    snapshot_id: OffsetAndEpoch
    position: int
    data: Records
    is_last: bool


@frozen(kw_only=True)
class ReadLog:
    """Fill a FetchResponse's `records`: whole batches from `offset` to the log's end, at least one.

    Nothing when `offset` is the end.  Followers read what is not committed yet; that is how it gets
    committed.
    """

    offset: Offset
    bytes_max: int


@frozen(kw_only=True)
class ReadSnapshot:
    """Fill a FetchSnapshotResponse's `data`: any byte range of the file."""

    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


@frozen(kw_only=True)
class Reply:
    """The answer to the `RequestReceived` of this token.

    With `read` the driver reads, and answers what it `filled`.
    """

    token: int
    response: Response
    read: ReadLog | ReadSnapshot | None = None

    def filled(self, data: Records) -> "Reply":
        """Return the reply with the bytes that `read` asks for."""
        response = self.response
        if isinstance(response, FetchSnapshotResponse):
            response = replace(response, data=data)
        else:
            assert isinstance(response, FetchResponse)
            response = replace(response, records=data)
        return replace(self, response=response, read=None)


@frozen(kw_only=True)
class Outgoing:
    """A request to a voter; its end is told by `ResponseReceived` or `RequestFailed`."""

    request_id: int
    to: NodeId
    endpoints: tuple[VoterEndpoint, ...]
    request: Request
    timeout_ms: int
    """How long the driver waits for the answer (a Fetch may be parked, which is counted in)."""


@frozen(kw_only=True)
class RoleChange:
    """This node's role, its epoch or the leader it knows has changed."""

    role: Role
    epoch: Epoch
    leader_id: NodeId | None


@frozen(kw_only=True)
class Disbelief:
    """An answer that cannot be true, and was refused."""

    node_id: NodeId
    why: str


@dataclass(slots=True)
class Effects:
    """All that one step asks for; the fields stand in the order of performing."""

    truncate_to: Offset | None = None
    append: list[Append] = field(default_factory=list)
    snapshot_chunk: SnapshotChunk | None = None
    persist_election: ElectionState | None = None
    flush: bool = False
    replies: list[Reply] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    high_watermark: Offset | None = None
    """The new high watermark when it moved: everything below is committed permanently.

    After the last chunk of a snapshot it is at least the snapshot's end, which is loaded already.
    """
    role_change: RoleChange | None = None
    disbelieved: Disbelief | None = None
    """For people: nothing is to be done about it."""
    next_wake_ms: int | None = None
    """When the next `Tick` is due at the latest; None while nothing is waited for."""
