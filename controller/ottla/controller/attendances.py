"""Which brokers are gone for certain, before their sessions end: decided of what was seen.

Every broker keeps one call open at the active controller (`Attend`), on the connection of its
heartbeats.  A process that ends closes it.  So may a network, a proxy or a goodbye of the transport
(GOAWAY), which is why that alone ends nothing: it makes the controller try the broker's address,
and only a refusal, which a kernel gives for a port where nothing listens, ends the session.
Invariants:

* OnlyCertainDeathsEndSessions: a session ends early only when, in one epoch of this controller and
  in one incarnation of the broker, its call was here and was cut off; its address, which accepted a
  connection of this controller earlier, refuses one now; and nothing was heard of it since then for
  `SILENCE_MS`, in which a living broker calls again.
* A controller that has been active for less than one session neither tries addresses nor ends
  sessions: brokers have just changed over to it.
* FewProbes: an address is one of the broker's own registration, and is tried at most once in
  `PROBE_INTERVAL_MS`, but for the few tries that one cut-off call is worth.

Pure but for the `BrokerSessions` it is handed.  Soft: forgotten with the leadership.
"""

from dataclasses import dataclass
from uuid import UUID

from ottla.controller.sessions import BrokerSessions
from ottla.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId
from ottla.model.values import frozen

SILENCE_MS = 300
"""How long a broker is not heard after its call was cut off.  Shorter is fooled by one that dials
again slowly, longer delays each failover by as much."""

PROBE_INTERVAL_MS = 1_000
"""How often one broker's calls have its address tried.  Shorter lets a broker that opens and drops
calls make the controller knock, longer leaves a broker to its timeout that was cut off before."""


@dataclass(frozen=True, slots=True, eq=False)
class Attendance:
    """One call that a broker keeps open; each is equal to itself alone."""

    broker: NodeId
    broker_epoch: int
    incarnation_id: UUID
    endpoint: Endpoint
    """Where other brokers reach it."""
    controller_epoch: Epoch
    """In which the call was made."""


@frozen
class Suspicion:
    """That the process of a broker is gone, since its call was cut off."""

    attendance: Attendance
    contact_count: int
    """Heartbeats of its session by then."""


class Attendances:
    """The calls that brokers keep open at this controller, and what their ends mean."""

    def __init__(self, sessions: BrokerSessions) -> None:
        self._sessions = sessions
        self._epoch: Epoch | None = None
        """In which this controller is the active one; None while it is not."""
        self._active_ms = 0
        """Since when it is."""
        self._latest: dict[NodeId, Attendance] = {}
        self._accepting: dict[NodeId, int] = {}
        """The epochs of brokers whose address has accepted a connection of this controller."""
        self._probed_ms: dict[NodeId, int] = {}

    def begin_turn(self, epoch: Epoch | None, now_ms: int) -> None:
        """Forget everything: this controller became the active one, or ceased to be it."""
        self._epoch, self._active_ms = epoch, now_ms
        self._latest.clear()
        self._accepting.clear()
        self._probed_ms.clear()

    def arrive(self, broker: BrokerRegistration, listener_name: str, epoch: Epoch) -> Attendance:
        """Note a call that a broker keeps open; it takes the place of an earlier one.

        Raises RefusedError if the broker has not registered the listener.
        """
        endpoint = broker.endpoint(listener_name)
        if endpoint is None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Broker {broker.id} has registered no listener of the name it gives",
            )
        attendance = Attendance(broker.id, broker.epoch, broker.incarnation_id, endpoint, epoch)
        self._latest[broker.id] = attendance
        return attendance

    def leave(self, attendance: Attendance) -> None:
        """Note that a call ended as it should, or that its end means nothing any longer."""
        if self.is_latest(attendance):
            del self._latest[attendance.broker]

    def latest_of(self, broker: NodeId) -> Attendance | None:
        """Return the latest call of a broker that is open or was cut off just now."""
        return self._latest.get(broker)

    def is_latest(self, attendance: Attendance) -> bool:
        """Return whether the broker has not called again."""
        return self._latest.get(attendance.broker) is attendance

    # --- what its address said while the broker lived ---------------------------------------

    def acquaintance_wait_ms(self, attendance: Attendance, now_ms: int) -> int | None:
        """Return how long to wait before its address is tried for the first time.

        None if that is not to be: it has accepted a connection, or the call is not the latest.
        """
        is_known = self._accepting.get(attendance.broker) == attendance.broker_epoch
        if self._epoch is None or is_known or not self.is_latest(attendance):
            return None
        probed_ms = self._probed_ms.get(attendance.broker, now_ms - PROBE_INTERVAL_MS)
        settled_ms = self._active_ms + self._sessions.session_timeout_ms
        return max(0, settled_ms - now_ms, probed_ms + PROBE_INTERVAL_MS - now_ms)

    def note_probe(self, attendance: Attendance, now_ms: int) -> None:
        """Note that its address is tried now."""
        self._probed_ms[attendance.broker] = now_ms

    def note_accepting(self, attendance: Attendance) -> None:
        """Note that its address accepted a connection while its call was open."""
        if self.is_latest(attendance):
            self._accepting[attendance.broker] = attendance.broker_epoch
            del self._probed_ms[attendance.broker]  # this one was not for a cut-off call

    # --- when its call was cut off ------------------------------------------------------------

    def suspect(
        self, attendance: Attendance, image: MetadataImage, epoch: Epoch | None, now_ms: int
    ) -> Suspicion | None:
        """Return the suspicion that a cut-off call raises; None if there is no reason for one."""
        probed_ms = self._probed_ms.get(attendance.broker, now_ms - PROBE_INTERVAL_MS)
        if (
            now_ms < self._active_ms + self._sessions.session_timeout_ms
            or now_ms < probed_ms + PROBE_INTERVAL_MS
            or self._accepting.get(attendance.broker) != attendance.broker_epoch
        ):
            return None
        suspicion = Suspicion(attendance, self._sessions.contact_count(attendance.broker))
        return suspicion if self.is_suspected(suspicion, image, epoch, now_ms) else None

    def is_suspected(
        self, suspicion: Suspicion, image: MetadataImage, epoch: Epoch | None, now_ms: int
    ) -> bool:
        """Return whether nothing was heard of the broker, and nothing changed, since it was.

        `image` and `epoch` are those of the controller now.
        """
        attendance = suspicion.attendance
        broker = image.brokers.get(attendance.broker)
        return (
            epoch == self._epoch == attendance.controller_epoch
            and broker is not None
            and broker.epoch == attendance.broker_epoch
            and broker.incarnation_id == attendance.incarnation_id
            and broker.endpoint(attendance.endpoint.name) == attendance.endpoint
            and self.is_latest(attendance)
            and self._sessions.contact_count(broker.id) == suspicion.contact_count
            and self._sessions.is_valid(broker, now_ms)
        )
