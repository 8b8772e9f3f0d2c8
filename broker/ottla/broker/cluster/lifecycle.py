"""A broker's life as the controller sees it: register, serve, ask to leave.

Pure: it says what to tell the controller next and judges its answers; `lifecycle_driver` does the
telling.  A broker registers fenced, once its logs are recovered: it names the replicas whose logs
hold less than they did, and none of these may lead from its registration on.  It asks to be
unfenced once its first image is applied, and serves when the answer says so.  Asked to stop, it
first lets the controller move its leaderships away (Kafka's controlled shutdown).  Asked to drain,
it does the same and stays: fenced, still following, until that is undone or it stops.

Invariant OneIncarnation: an answer that names another registration of our id ends this process.
"""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset


class BrokerState(IntEnum):
    """Kafka's states of a broker, under Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    """Catching up with the metadata log."""
    RECOVERY = 2
    """Caught up; the logs are being recovered, and then the broker registers."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """The controller moves our leaderships away."""
    SHUTTING_DOWN = 7
    DRAINING = 100
    """As before a stop, but we stay.  This and the next are not Kafka's: their numbers are far."""
    DRAINED = 101
    """Fenced by our own wish: we lead nothing and follow what we hold."""


LEGAL = {
    BrokerState.NOT_RUNNING: {BrokerState.STARTING},
    BrokerState.STARTING: {BrokerState.RECOVERY, BrokerState.SHUTTING_DOWN},
    BrokerState.RECOVERY: {
        BrokerState.RUNNING,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
    },
    BrokerState.RUNNING: {
        BrokerState.DRAINING,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
    },
    BrokerState.DRAINING: {
        BrokerState.DRAINED,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
    },
    BrokerState.DRAINED: {
        BrokerState.RUNNING,
        BrokerState.PENDING_CONTROLLED_SHUTDOWN,
        BrokerState.SHUTTING_DOWN,
    },
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: {BrokerState.SHUTTING_DOWN},
    BrokerState.SHUTTING_DOWN: set(),
}

LEAVABLE = (
    BrokerState.RECOVERY,
    BrokerState.RUNNING,
    BrokerState.DRAINING,
    BrokerState.DRAINED,
)
"""From these, once registered, a stop says goodbye: the next incarnation need not wait for our
session to end."""

FATAL_TO_REGISTRATION = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "this broker's directories belong to another cluster",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster's features are not supported by this version",
    ErrorCode.INVALID_REGISTRATION: "the controller does not accept the registration",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not accept the registration",
}
"""Refusals that no waiting heals."""

SHUTDOWN_FAILURES_MAX = 3
"""Unanswered heartbeats after which a stopping broker goes without leave.  Fewer gives up on a
controller that is being replaced; more keeps an operator waiting when everything is stopped."""


class NextHeartbeat(NamedTuple):
    """What the next heartbeat says."""

    broker_epoch: int
    metadata_offset: Offset
    wants_fence: bool
    wants_shut_down: bool
    offline_directories: tuple[UUID, ...]
    cordoned_directories: tuple[UUID, ...]


class Lifecycle:
    """Where one broker process stands."""

    def __init__(self) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.is_fenced = True
        self.is_leave_granted = False
        self.offline_directories: tuple[UUID, ...] = ()
        self.cordoned_directories: tuple[UUID, ...] = ()
        self.failures_in_a_row = 0
        """Heartbeats that nobody answered since the last that somebody did."""

    def become(self, state: BrokerState) -> None:
        """Go on to another state."""
        assert state in LEGAL[self.state], f"{self.state.name} cannot become {state.name}"
        self.state = state

    @property
    def is_leaving(self) -> bool:
        """Whether the controller is to move our leaderships away."""
        return self.state in (BrokerState.DRAINING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    @property
    def may_leave(self) -> bool:
        """True if the controller is asked before a stop."""
        return self.state in LEAVABLE and self.broker_epoch >= 0

    # ---- drain

    def drain(self) -> None:
        """Ask to be freed of all leaderships; nothing changes where that was asked before."""
        if self.state in (BrokerState.DRAINING, BrokerState.DRAINED):
            return
        if self.state is not BrokerState.RUNNING:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"it is {self.state.name} and cannot be drained; wait until it is RUNNING",
            )
        self.become(BrokerState.DRAINING)

    def undo_drain(self) -> None:
        """Ask to be unfenced again; refuse while the controller still moves leaderships."""
        if self.state is BrokerState.DRAINING:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                "its leaderships are still being moved; undo the drain when it is DRAINED",
            )
        if self.state is BrokerState.DRAINED:
            self.become(BrokerState.RUNNING)

    # ---- registration

    def on_caught_up(self) -> None:
        """Begin to recover the logs, by the image that this broker has by now."""
        self.become(BrokerState.RECOVERY)

    def on_registered(self, broker_epoch: int) -> None:
        """Take the epoch that this incarnation has from now on."""
        assert self.state is BrokerState.RECOVERY
        assert broker_epoch >= 0
        self.broker_epoch = broker_epoch

    def judge_registration(self, error: RefusedError, *, broker_id: int, is_late: bool) -> str:
        """Return what to tell whoever watches while we try again; raise when that is of no use."""
        reason = FATAL_TO_REGISTRATION.get(error.code)
        if reason is not None:
            raise RefusedError(error.code, f"broker {broker_id}: {reason}: {error.message}")
        if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            text = (
                f"another broker {broker_id} is registered and alive; stop it, or give this one a "
                "node.id of its own (after a crash its session ends by itself)"
            )
        else:
            text = f"the controller cannot be reached yet: {error.message}"
        if is_late:
            raise RefusedError(
                error.code,
                f"broker {broker_id} could not register within "
                f"initial.broker.registration.timeout.ms: {text}",
            )
        return text

    # ---- heartbeats

    def heartbeat(self, metadata_offset: Offset) -> NextHeartbeat:
        """Return what to say now."""
        return NextHeartbeat(
            broker_epoch=self.broker_epoch,
            metadata_offset=metadata_offset,
            wants_fence=self.state
            not in (
                BrokerState.RUNNING,
                BrokerState.DRAINING,
                BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            ),
            wants_shut_down=self.is_leaving,
            offline_directories=self.offline_directories,
            cordoned_directories=self.cordoned_directories,
        )

    def on_heartbeat_answer(self, *, is_fenced: bool, should_shut_down: bool) -> None:
        """Take the controller's answer."""
        self.failures_in_a_row = 0
        self.is_fenced = is_fenced
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.is_leave_granted = self.is_leave_granted or should_shut_down
        elif self.state is BrokerState.DRAINING and should_shut_down:
            self.become(BrokerState.DRAINED)

    def on_heartbeat_refused(self, error: RefusedError, broker_id: int) -> str:
        """Return what to log; raise when this incarnation has lost its place."""
        if error.code is ErrorCode.STALE_BROKER_EPOCH:
            raise RefusedError(
                error.code,
                f"another process has registered as broker {broker_id}; this one must end",
            )
        self.failures_in_a_row += 1
        if (
            self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
            and self.failures_in_a_row >= SHUTDOWN_FAILURES_MAX
        ):
            self.is_leave_granted = True
        return f"heartbeat: {error}"
