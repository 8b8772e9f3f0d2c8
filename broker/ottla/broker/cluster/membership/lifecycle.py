"""State machine of a broker's membership: registration, serving, controlled shutdown.

Pure: it decides the next message to the controller and interprets its responses; `lifecycle_driver`
sends the messages. After the recovery of its logs, a broker registers and is fenced at first. The
registration names the replicas that lost records. These replicas may no longer become leaders. The
broker requests to be unfenced once its first image is applied, and serves when the response
confirms it. Before a stop, it waits until the controller has moved its leaderships to other brokers
(Kafka's controlled shutdown). A drain works in the same way, but the broker continues to run. It is
then fenced and replicates as a follower, until the drain is undone or the broker stops.

Invariant OneIncarnation: a response that names another registration of this broker's id ends this
process.
"""

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset


class BrokerState(IntEnum):
    """States of a broker's membership in the cluster, with Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    """State of a starting broker that reads the metadata log up to its end."""
    RECOVERY = 2
    """State of a starting broker that recovers its logs. It registers at the controller
    afterwards."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """State of a stopping broker while the controller moves its leaderships to other brokers."""
    SHUTTING_DOWN = 7
    DRAINING = 100
    """State of a broker during a drain, while the controller moves its leaderships to other
    brokers. Kafka does not have this state and DRAINED, so their numbers are far from Kafka's."""
    DRAINED = 101
    """State of a broker after a drain: it is fenced, leads no partition and continues to follow."""


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
"""States in which a registered broker asks the controller before it stops. The broker's next
process can then register at once, without waiting for the expiry of the old session."""

FATAL_TO_REGISTRATION = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "this broker's directories belong to another cluster",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster's features are not supported by this version",
    ErrorCode.INVALID_REGISTRATION: "the controller does not accept the registration",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the controller does not accept the registration",
}
"""Error codes that make the registration of a broker fail permanently, since retries cannot help.
The values are explanations for the operator."""

SHUTDOWN_FAILURES_MAX = 3
"""Number of consecutive unanswered heartbeats after which a stopping broker stops without the
controller's consent. With a smaller value, a broker stops without consent while a controller is
being replaced. With a larger value, stopping a whole cluster takes longer."""


class NextHeartbeat(NamedTuple):
    """Content of the next heartbeat from this broker to the controller."""

    broker_epoch: int
    metadata_offset: Offset
    wants_fence: bool
    wants_shut_down: bool
    offline_directories: tuple[UUID, ...]
    cordoned_directories: tuple[UUID, ...]


class Lifecycle:
    """Membership state of one broker process in the cluster, which decides the next message to the
    controller."""

    def __init__(self) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.is_fenced = True
        self.is_leave_granted = False
        self.offline_directories: tuple[UUID, ...] = ()
        self.cordoned_directories: tuple[UUID, ...] = ()
        self.failures_in_a_row = 0
        """Number of unanswered heartbeats since the controller's last response."""

    def become(self, state: BrokerState) -> None:
        """Change the state of the broker's membership in the cluster."""
        assert state in LEGAL[self.state], f"{self.state.name} cannot become {state.name}"
        self.state = state

    @property
    def is_leaving(self) -> bool:
        """True if the controller should move this broker's leaderships to other brokers, because of
        a stop or a drain."""
        return self.state in (BrokerState.DRAINING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    @property
    def may_leave(self) -> bool:
        """True if this broker is registered, and must therefore ask the controller before it
        stops."""
        return self.state in LEAVABLE and self.broker_epoch >= 0

    # ---- drain

    def drain(self) -> None:
        """Begin to drain this broker: request that the controller moves its leaderships to other
        brokers. Has no effect if a drain has begun already."""
        if self.state in (BrokerState.DRAINING, BrokerState.DRAINED):
            return
        if self.state is not BrokerState.RUNNING:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"it is {self.state.name} and cannot be drained; wait until it is RUNNING",
            )
        self.become(BrokerState.DRAINING)

    def undo_drain(self) -> None:
        """Undo a drain, so that this broker may lead again. Raises RefusedError if the controller
        is still moving leaderships away."""
        if self.state is BrokerState.DRAINING:
            raise RefusedError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                "its leaderships are still being moved; undo the drain when it is DRAINED",
            )
        if self.state is BrokerState.DRAINED:
            self.become(BrokerState.RUNNING)

    # ---- registration

    def on_caught_up(self) -> None:
        """Enter the state RECOVERY, since the metadata log has been read up to its end."""
        self.become(BrokerState.RECOVERY)

    def on_registered(self, broker_epoch: int) -> None:
        """Store the broker epoch that the controller has assigned to this incarnation (process run)
        of the broker."""
        assert self.state is BrokerState.RECOVERY
        assert broker_epoch >= 0
        self.broker_epoch = broker_epoch

    def judge_registration(self, error: RefusedError, *, broker_id: int, is_late: bool) -> str:
        """Return a log message about a failed registration of this broker that will be retried.

        Raises RefusedError if a retry would also fail.
        """
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
        """Return the content of the next heartbeat from this broker to the controller."""
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
        """Apply the controller's response to a heartbeat of this broker."""
        self.failures_in_a_row = 0
        self.is_fenced = is_fenced
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.is_leave_granted = self.is_leave_granted or should_shut_down
        elif self.state is BrokerState.DRAINING and should_shut_down:
            self.become(BrokerState.DRAINED)

    def on_heartbeat_refused(self, error: RefusedError, broker_id: int) -> str:
        """Return a log message about a heartbeat that the controller refused. Raises RefusedError
        if another incarnation (process run) of this broker has replaced this one."""
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
