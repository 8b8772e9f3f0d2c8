"""Events of a quorum core, that is, every input of `QuorumCore.step`."""

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.values import frozen
from ottla.raft.messages import Records, Request, Response


@frozen
class Tick:
    """Event that time has passed. The driver sends it no later than `Effects.next_wake_ms` of the
    last step."""


@frozen(kw_only=True)
class RequestReceived:
    """Event that another node has sent a request. Exactly one `Reply` with the same token follows,
    in this or a later step."""

    token: int
    """Number that the driver assigned to the received request. It is never reused."""
    request: Request


@frozen(kw_only=True)
class ResponseReceived:
    """Event that the response to an `OutgoingRequest` has arrived. It is dropped if its id is
    unknown or outdated."""

    request_id: int
    response: Response


@frozen(kw_only=True)
class RequestFailed:
    """Event that an `OutgoingRequest` has failed by a lost connection or a timeout. Its outcome is
    unknown."""

    request_id: int


@frozen(kw_only=True)
class LeaderRefused:
    """Event that the leader's address refuses connections (ECONNREFUSED), after a fetch from the
    leader has failed.

    The driver has just tried every address of the leader's host. This event does not report other
    failures, such as a reset, a timeout, an unknown host name or an unreachable host.
    """

    leader_id: NodeId
    epoch: Epoch
    """Epoch of the leader, as this node knew it when its fetch failed."""


@frozen(kw_only=True)
class AppendRequested:
    """Event that the application requests an append of complete batches. `epoch` is the epoch in
    which this node leads according to the application.

    `step` raises RefusedError(NOT_LEADER_OR_FOLLOWER) and changes nothing if this node does not
    lead `epoch`.
    """

    epoch: Epoch
    records: Records


@frozen(kw_only=True)
class LogFlushed:
    """Event that an fsync has ended: the log is durable up to `end_offset`, which LogView also
    reports."""

    end_offset: Offset


@frozen(kw_only=True)
class ResignRequested:
    """Event that this node should resign as leader of `epoch`, after a fault of the controller.
    Ignored if the node no longer leads."""

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
