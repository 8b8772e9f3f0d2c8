"""What may happen to a quorum core: the whole alphabet of `QuorumCore.step`."""

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.values import frozen
from ottla.raft.messages import Records, Request, Response


@frozen
class Tick:
    """Time has passed; due at the latest at the last effects' `next_wake_ms`."""


@frozen(kw_only=True)
class RequestReceived:
    """A node asks something; exactly one `Reply` with this token follows, now or later."""

    token: int
    """The driver's own number for the request, never used twice."""
    request: Request


@frozen(kw_only=True)
class ResponseReceived:
    """The answer to an `Outgoing` request; unknown and outdated ids are dropped."""

    request_id: int
    response: Response


@frozen(kw_only=True)
class RequestFailed:
    """An `Outgoing` request met a dead connection or its deadline; nobody knows its outcome."""

    request_id: int


@frozen(kw_only=True)
class LeaderRefused:
    """The leader's address refuses connections (ECONNREFUSED), after a fetch from it has failed.

    The driver has tried every address of the leader's host just now.  No other failure counts: not
    a reset, a goodbye, a timeout, nor a name or a host that is not found.
    """

    leader_id: NodeId
    epoch: Epoch
    """The leader's, as this node knew it when the fetch failed."""


@frozen(kw_only=True)
class AppendRequested:
    """The application appends whole batches under the leadership it believes to hold.

    `step` raises RefusedError(NOT_LEADER_OR_FOLLOWER) and changes nothing when `epoch` is not the
    epoch this node leads.
    """

    epoch: Epoch
    records: Records


@frozen(kw_only=True)
class Flushed:
    """An fsync finished: the log is durable up to `end_offset` (LogView says so from now on)."""

    end_offset: Offset


@frozen(kw_only=True)
class ResignRequested:
    """Give up leadership in `epoch` if it is still held (a controller's fault); no-op else."""

    epoch: Epoch


@frozen
class ShutdownRequested:
    """The node is about to stop: hand leadership over, never campaign again.

    Keep stepping until `QuorumCore.is_handed_over` or until patience ends.
    """


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | LeaderRefused
    | AppendRequested
    | Flushed
    | ResignRequested
    | ShutdownRequested
)
