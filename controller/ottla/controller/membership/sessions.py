"""Sessions of brokers: in-memory state of the active controller about heartbeats.

Nothing is durable, and an inactive controller has no sessions. When a controller becomes active,
every unfenced broker of the image gets one full session. When it becomes inactive, the sessions are
dropped. Times are of the monotonic clock. Only time in which this process was running counts,
because a suspended process, or one that is busy with a long decision, receives no heartbeats.

A long decision reads and renews sessions in another thread. This is safe, because each change
affects one entry, and loops over all entries use a copy of the list.
"""

from dataclasses import dataclass

from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.model.ids import NO_OFFSET, NodeId, Offset


@dataclass(slots=True)
class Session:
    """Session of one broker: its last heartbeat, and the data that its heartbeats have reported."""

    broker_epoch: int
    contact_ms: int
    contact_count: int = 0
    """Number of heartbeats that the broker has sent since this session began."""
    metadata_offset: Offset = NO_OFFSET
    """Metadata offset that the broker last reported as applied."""
    produce_p99_us: int | None = None
    """99th percentile of the durations of Produce requests in µs, as last reported by the broker.
    None if the broker had no Produce requests."""
    cut_off_ms: int | None = None
    """Monotonic time in ms at which the broker's open call was cut off. None if the call is open,
    or if the broker has sent a heartbeat or opened another call since."""
    shutdown_offset: Offset | None = None
    """Metadata offset that all other brokers must apply before this broker may shut down. None if
    the broker is not shutting down."""


SILENCE_MS = 300
"""Time in ms for which a broker must be silent after its call was cut off, before its session may
end early. With a shorter time, a session may end although the broker is only slow to reconnect. A
longer time delays each failover."""

LOOKS_PER_SESSION = 20
"""Number of checks, per session timeout, whether this process was suspended. With fewer, longer
suspensions remain undetected; with more, the process wakes up more often."""


class BrokerSessions:
    """The sessions of all brokers that have sent heartbeats."""

    def __init__(self, session_timeout_ms: int) -> None:
        assert session_timeout_ms > 0
        self.session_timeout_ms = session_timeout_ms
        self.look_interval_ms = max(1, session_timeout_ms // LOOKS_PER_SESSION)
        """Maximum interval in ms between two calls of `look`. A longer interval counts as a
        suspension of this process."""
        self._sessions: dict[NodeId, Session] = {}
        self._looked_ms: int | None = None

    def look(self, now_ms: int) -> int:
        """Detect a suspension of this process (SIGSTOP, a paused VM) since the last call, and
        extend all sessions by it. Returns the length of the suspension in ms, or 0 without a
        suspension."""
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        stall_ms = 0 if looked_ms is None else now_ms - looked_ms
        if stall_ms <= 2 * self.look_interval_ms:
            return 0
        for session in list(self._sessions.values()):
            session.contact_ms = min(session.contact_ms + stall_ms, now_ms)
        return stall_ms

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """Start a full session for every unfenced broker of the metadata image. Called when this
        controller becomes active."""
        self._looked_ms = now_ms
        self._sessions = {
            broker.id: Session(broker.epoch, now_ms)
            for broker in image.brokers.values()
            if not broker.is_fenced
        }

    def touch(
        self, broker: NodeId, broker_epoch: int, metadata_offset: Offset, now_ms: int
    ) -> Session:
        """Renew the session of a broker that has sent a heartbeat, and return the session."""
        session = self._sessions.get(broker)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker] = Session(broker_epoch, now_ms)
        session.contact_ms = max(session.contact_ms, now_ms)
        session.contact_count += 1
        session.cut_off_ms = None
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def slowest_produce_p99_us(self) -> int | None:
        """Return the highest 99th percentile of the durations of Produce requests, in µs, that any
        broker has reported. Returns None if no broker had Produce requests."""
        reported = [one.produce_p99_us for one in list(self._sessions.values())]
        return max((one for one in reported if one is not None), default=None)

    def of(self, broker: BrokerRegistration) -> Session:
        """Return the session of a broker that has just sent a heartbeat. The session must exist."""
        session = self._sessions[broker.id]
        assert session.broker_epoch == broker.epoch
        return session

    def forget(self, broker: NodeId) -> None:
        """Delete the session of a broker that has shut down in order."""
        self._sessions.pop(broker, None)

    def end(self, broker: NodeId, now_ms: int) -> int:
        """End a broker's session now. Returns the remaining time of the session in ms."""
        session = self._sessions[broker]
        left_ms = max(0, session.contact_ms + self.session_timeout_ms - now_ms)
        session.contact_ms -= left_ms
        return left_ms

    def contact_count(self, broker: NodeId) -> int:
        """Return the number of heartbeats in a broker's session, or 0 if the broker has no
        session."""
        session = self._sessions.get(broker)
        return 0 if session is None else session.contact_count

    def note_call(self, broker: NodeId) -> None:
        """Record that a broker has opened its long-running call, which shows that the broker is
        alive."""
        session = self._sessions.get(broker)
        if session is not None:
            session.cut_off_ms = None

    def note_cut_off(self, broker: NodeId, broker_epoch: int, now_ms: int) -> None:
        """Record that the latest call that a broker kept open was cut off."""
        session = self._sessions.get(broker)
        if session is not None and session.broker_epoch == broker_epoch:
            session.cut_off_ms = now_ms

    def silent_ms(self, broker: NodeId, now_ms: int) -> int:
        """Return the time in ms for which a broker has been silent since its call was cut off.
        Returns 0 if the call was not cut off, or if the broker has no session."""
        session = self._sessions.get(broker)
        if session is None or session.cut_off_ms is None:
            return 0
        return now_ms - session.cut_off_ms

    def is_valid(self, broker: BrokerRegistration, now_ms: int) -> bool:
        """Return whether a broker has a session that belongs to this registration and has not
        expired."""
        session = self._sessions.get(broker.id)
        return (
            session is not None
            and session.broker_epoch == broker.epoch
            and now_ms < session.contact_ms + self.session_timeout_ms
        )

    def expired(self, image: MetadataImage, now_ms: int) -> tuple[BrokerRegistration, ...]:
        """Return the unfenced brokers whose sessions have expired."""
        return tuple(
            broker
            for broker in image.brokers.values()
            if not broker.is_fenced and not self.is_valid(broker, now_ms)
        )

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        """Return the monotonic time in ms at which the first broker session expires if no heartbeat
        arrives. Returns None if no unfenced broker has a session."""
        contacts = [
            session.contact_ms
            for broker, session in list(self._sessions.items())
            if broker in image.brokers and not image.brokers[broker].is_fenced
        ]
        return min(contacts) + self.session_timeout_ms if contacts else None

    def lowest_active_offset(self, image: MetadataImage) -> Offset | None:
        """Return the highest metadata offset that every active broker has applied, or None if no
        broker is active."""
        offsets = [
            session.metadata_offset
            for broker, session in list(self._sessions.items())
            if image.is_active(broker)
        ]
        return min(offsets) if offsets else None
