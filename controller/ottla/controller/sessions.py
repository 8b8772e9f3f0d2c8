"""Which brokers are alive: the active controller's soft memory of heartbeats.

Owns nothing durable: it is empty on a standby, refilled from the image when a controller becomes
active (every unfenced broker gets one full session then), and forgotten with the leadership.
Instants are of the monotonic clock, and only time that this controller was awake counts: while it
was stopped, or busy with one long decision, no broker could make itself heard.

A long decision reads and touches sessions beside the loop, in another thread: each change is of one
entry, and whoever looks at all of them looks at a copy of the list.
"""

from dataclasses import dataclass

from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.model.ids import NO_OFFSET, NodeId, Offset


@dataclass(slots=True)
class Session:
    """One broker's last sign of life."""

    broker_epoch: int
    contact_ms: int
    contact_count: int = 0
    """How often it was heard."""
    metadata_offset: Offset = NO_OFFSET
    """The last metadata offset the broker said it applied."""
    shutdown_offset: Offset | None = None
    """While it shuts down: the offset all other brokers must have seen first."""


LOOKS_PER_SESSION = 20
"""How often a controller looks at the clock within a session.  Fewer miss longer stalls; more cost
wake-ups."""


class BrokerSessions:
    """The sessions of all brokers that were heard of."""

    def __init__(self, session_timeout_ms: int) -> None:
        assert session_timeout_ms > 0
        self.session_timeout_ms = session_timeout_ms
        self.look_interval_ms = max(1, session_timeout_ms // LOOKS_PER_SESSION)
        """How often at least `look` must be called."""
        self._sessions: dict[NodeId, Session] = {}
        self._looked_ms: int | None = None

    def look(self, now_ms: int) -> int:
        """Note that the controller is awake, and return how long it was not, if it was not.

        That time is given back to every session.
        """
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        stall_ms = 0 if looked_ms is None else now_ms - looked_ms
        if stall_ms <= 2 * self.look_interval_ms:
            return 0
        for session in list(self._sessions.values()):
            session.contact_ms = min(session.contact_ms + stall_ms, now_ms)
        return stall_ms

    def reset(self, image: MetadataImage, now_ms: int) -> None:
        """Begin again on becoming the active controller."""
        self._looked_ms = now_ms
        self._sessions = {
            broker.id: Session(broker.epoch, now_ms)
            for broker in image.brokers.values()
            if not broker.is_fenced
        }

    def touch(
        self, broker: NodeId, broker_epoch: int, metadata_offset: Offset, now_ms: int
    ) -> Session:
        """Note a sign of life and return the session."""
        session = self._sessions.get(broker)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker] = Session(broker_epoch, now_ms)
        session.contact_ms = max(session.contact_ms, now_ms)
        session.contact_count += 1
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def of(self, broker: BrokerRegistration) -> Session:
        """Return the session of a broker that was heard of just now."""
        session = self._sessions[broker.id]
        assert session.broker_epoch == broker.epoch
        return session

    def forget(self, broker: NodeId) -> None:
        """Drop the session of a broker that said goodbye."""
        self._sessions.pop(broker, None)

    def end(self, broker: NodeId, now_ms: int) -> int:
        """Let a session be over, and return how many milliseconds were left of it."""
        session = self._sessions[broker]
        left_ms = max(0, session.contact_ms + self.session_timeout_ms - now_ms)
        session.contact_ms -= left_ms
        return left_ms

    def contact_count(self, broker: NodeId) -> int:
        """Return how often a broker was heard in its session; 0 if it has none."""
        session = self._sessions.get(broker)
        return 0 if session is None else session.contact_count

    def is_valid(self, broker: BrokerRegistration, now_ms: int) -> bool:
        """Return whether this registration of the broker was heard of within its time."""
        session = self._sessions.get(broker.id)
        return (
            session is not None
            and session.broker_epoch == broker.epoch
            and now_ms < session.contact_ms + self.session_timeout_ms
        )

    def expired(self, image: MetadataImage, now_ms: int) -> tuple[BrokerRegistration, ...]:
        """Return the unfenced brokers that have been silent for too long."""
        return tuple(
            broker
            for broker in image.brokers.values()
            if not broker.is_fenced and not self.is_valid(broker, now_ms)
        )

    def next_expiry_ms(self, image: MetadataImage) -> int | None:
        """Return when `expired` has somebody next, if nothing is heard until then."""
        contacts = [
            session.contact_ms
            for broker, session in list(self._sessions.items())
            if broker in image.brokers and not image.brokers[broker].is_fenced
        ]
        return min(contacts) + self.session_timeout_ms if contacts else None

    def lowest_active_offset(self, image: MetadataImage) -> Offset | None:
        """Return what every active broker has applied; None when none is active."""
        offsets = [
            session.metadata_offset
            for broker, session in list(self._sessions.items())
            if image.is_active(broker)
        ]
        return min(offsets) if offsets else None
