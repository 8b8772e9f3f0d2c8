"""Detection of brokers whose process has certainly ended, before their sessions expire.

Every broker keeps one call (`Attend`) open at the active controller, on the connection of its
heartbeats. When the process ends, the call is closed. A network failure, a proxy or a GOAWAY of the
transport may also close it. The controller therefore only probes the broker's address when the call
ends. A session ends early only if the connection is refused, because a kernel refuses connections
to a port on which no process listens. Invariants:

* OnlyCertainDeathsEndSessions: a session ends early only if all of these conditions are met in one
  epoch of this controller and one incarnation of the broker. The broker's call was open and was cut
  off. The broker's address has accepted a connection of this controller before, and now refuses
  one. The broker has sent nothing for `SILENCE_MS` since then; a living broker would call again.
* A controller that has been active for less than one session timeout neither probes addresses nor
  ends sessions, because brokers have just switched to it.
* The next process of a broker whose call was cut off need not wait for the session timeout, also at
  a controller that has just become active. `brokers.register` uses `BrokerSessions.silent_ms` for
  this.
* FewProbes: only addresses in the broker's own registration are probed. An address is probed at
  most once in `PROBE_INTERVAL_MS`, except for the few probes after a call was cut off.

Pure, except that the caller's `BrokerSessions` are changed. All state is dropped when the
leadership ends.
"""

from dataclasses import dataclass
from uuid import UUID

from ottla.controller.membership.sessions import BrokerSessions
from ottla.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId
from ottla.model.values import frozen

PROBE_INTERVAL_MS = 1_000
"""Minimum interval in ms between probes of one broker's address. With a shorter interval, a broker
that repeatedly opens and closes its call (`Attend`) causes many connections. With a longer
interval, a broker whose call ends soon after a probe is not probed again, and its failover waits
for the session timeout."""


@dataclass(frozen=True, slots=True, eq=False)
class Attendance:
    """One call that a broker keeps open at the active controller while the broker is alive. Calls
    are compared by identity: two calls are never equal."""

    broker: NodeId
    broker_epoch: int
    incarnation_id: UUID
    endpoint: Endpoint
    """Address at which other nodes connect to the broker that made the call."""
    controller_epoch: Epoch
    """Epoch of the active controller in which the broker made the call."""


@frozen
class Suspicion:
    """Suspicion that a broker's process has ended, because the call that it kept open was cut
    off."""

    attendance: Attendance
    contact_count: int
    """Number of heartbeats in the broker's session when the broker's call was cut off."""


class Attendances:
    """Calls that brokers keep open at this controller while they are alive. After a call was cut
    off, this class collects the evidence for or against the broker's death."""

    def __init__(self, sessions: BrokerSessions) -> None:
        self._sessions = sessions
        self._epoch: Epoch | None = None
        """Epoch in which this controller is active. None while it is not active."""
        self._active_ms = 0
        """Monotonic time in ms since which this controller is active."""
        self._latest: dict[NodeId, Attendance] = {}
        self._accepting: dict[NodeId, int] = {}
        """Broker epochs of the brokers whose address has accepted a connection of this
        controller."""
        self._probed_ms: dict[NodeId, int] = {}

    def begin_turn(self, epoch: Epoch | None, now_ms: int) -> None:
        """Drop all calls of brokers and all evidence, because this controller has become active in
        `epoch`, or inactive (None)."""
        self._epoch, self._active_ms = epoch, now_ms
        self._latest.clear()
        self._accepting.clear()
        self._probed_ms.clear()

    def arrive(self, broker: BrokerRegistration, listener_name: str, epoch: Epoch) -> Attendance:
        """Register and return a call that a broker keeps open to show that it is alive. A later
        call of the same broker replaces an earlier one.

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
        self._sessions.note_call(broker.id)
        return attendance

    def leave(self, attendance: Attendance) -> None:
        """Remove a broker's call that ended normally, or whose end no longer matters."""
        if self.is_latest(attendance):
            del self._latest[attendance.broker]

    def latest_of(self, broker: NodeId) -> Attendance | None:
        """Return the latest call that a broker has kept open, which may have been cut off just now.
        Returns None if there is no such call."""
        return self._latest.get(broker)

    def is_latest(self, attendance: Attendance) -> bool:
        """Return whether this call is still the latest that its broker keeps open."""
        return self._latest.get(attendance.broker) is attendance

    # --- evidence while the broker is alive ---------------------------------------------------

    def first_probe_wait_ms(self, attendance: Attendance, now_ms: int) -> int | None:
        """Return the time in ms to wait before the address of a call's broker is probed for the
        first time.

        Returns None if no probe is needed: this controller is not active, the address has already
        accepted a connection, or the call is not the broker's latest.
        """
        is_known = self._accepting.get(attendance.broker) == attendance.broker_epoch
        if self._epoch is None or is_known or not self.is_latest(attendance):
            return None
        probed_ms = self._probed_ms.get(attendance.broker, now_ms - PROBE_INTERVAL_MS)
        settled_ms = self._active_ms + self._sessions.session_timeout_ms
        return max(0, settled_ms - now_ms, probed_ms + PROBE_INTERVAL_MS - now_ms)

    def note_probe(self, attendance: Attendance, now_ms: int) -> None:
        """Record that a broker's address is being probed."""
        self._probed_ms[attendance.broker] = now_ms

    def note_accepting(self, attendance: Attendance) -> None:
        """Record that a broker's address accepted a connection while the broker's call was open."""
        if self.is_latest(attendance):
            self._accepting[attendance.broker] = attendance.broker_epoch
            del self._probed_ms[attendance.broker]  # this probe was not for a cut-off call

    # --- after the broker's call was cut off --------------------------------------------------

    def suspect(
        self, attendance: Attendance, image: MetadataImage, epoch: Epoch | None, now_ms: int
    ) -> Suspicion | None:
        """Record that a broker's call was cut off. Returns the suspicion that the broker has ended,
        or None if there is no reason for a suspicion."""
        if self.is_latest(attendance):
            self._sessions.note_cut_off(attendance.broker, attendance.broker_epoch, now_ms)
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
        """Return whether a broker is still suspected to have ended: it has sent nothing since the
        suspicion arose, and neither its registration nor the controller's epoch has changed.

        `image` and `epoch` are the controller's present metadata image and epoch.
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
