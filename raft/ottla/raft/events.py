"""Events of a quorum core: every input of `QuorumCore.step`."""

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.values import frozen
from ottla.raft.messages import Records, Request, Response


@frozen
class Tick:
    """Event that time has passed. The driver sends it no later than `next_wake_ms` of the last
    effects."""


@frozen(kw_only=True)
class RequestReceived:
    """A request of another node. Exactly one `Reply` with this token follows, in this or a later
    step."""

    token: int
    """Number that the driver gave the request. It is never reused."""
    request: Request


@frozen(kw_only=True)
class ResponseReceived:
    """The response to an `OutgoingRequest`. It is dropped if its id is unknown or outdated."""

    request_id: int
    response: Response


@frozen(kw_only=True)
class RequestFailed:
    """Failure of an `OutgoingRequest` by a lost connection or a timeout; the outcome of the request
    is unknown."""

    request_id: int


@frozen(kw_only=True)
class LeaderRefused:
    """Event that the leader's address refuses connections (ECONNREFUSED), after a fetch from the
    leader has failed.

    The driver has just tried every address of the leader's host. No other failure counts: neither a
    reset, an EndQuorumEpoch, a timeout, nor an unknown host name or an unreachable host.
    """

    leader_id: NodeId
    epoch: Epoch
    """The leader's epoch as this node knew it when its fetch failed."""


@frozen(kw_only=True)
class AppendRequested:
    """A request of the application to append complete batches in `epoch`, in which the application
    believes that this node leads.

    `step` raises RefusedError(NOT_LEADER_OR_FOLLOWER) and changes nothing if this node does not
    lead `epoch`.
    """

    epoch: Epoch
    records: Records


@frozen(kw_only=True)
class LogFlushed:
    """The end of an fsync: the log is durable up to `end_offset`, which LogView also reports."""

    end_offset: Offset


@frozen(kw_only=True)
class ResignRequested:
    """A request to resign as leader of `epoch`, after a fault of the controller. Ignored if this
    node no longer leads."""

    epoch: Epoch


@frozen
class ShutdownRequested:
    """Event that the node is about to stop. The replica transfers its leadership to a successor and
    never stands for election again.

    The driver continues to call `step` until `QuorumCore.is_handed_over`, or until the shutdown
    timeout.
    """


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | LeaderRefused
    | AppendRequested
    | LogFlushed
    | ResignRequested
    | ShutdownRequested
)
