"""The active controller of a walk: real decisions, and every record and image there ever was.

A decision is committed at once, for brokers hear only of what is committed.  One that is not atomic
may be cut short by a controller that dies between two appends; the next one begins as a real one
does, with full sessions and the elections that were left over.
"""

from dataclasses import replace

from ottla.controller import brokers, elections
from ottla.controller.decision import Decision, R, decided
from ottla.controller.mutation_quotas import MutationQuotas
from ottla.controller.rehearsal import Rehearsal
from ottla.controller.sessions import BrokerSessions
from ottla.metadata import fold
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, Provenance
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.rates import WindowShape


class ControllerHistory(Rehearsal):
    """A rehearsal that remembers."""

    def __init__(self, *, min_insync_replicas: int) -> None:
        self.log: list[Record] = []
        self.images: list[MetadataImage] = []
        """What brokers may come to see, one after each append."""
        self.ends: list[Offset] = []
        """The offset after the last record of each image."""
        self.records_left: int | None = None
        """How many more records the next decision may append before the controller dies."""
        self.failover_count = 0
        super().__init__(min_insync_replicas=min_insync_replicas)

    def fork(self) -> "ControllerHistory":
        """Return the same controller, to go another way."""
        other = type(self).__new__(type(self))
        other.config = self.config
        other.min_insync_replicas = self.min_insync_replicas
        other.now_ms = self.now_ms
        other.next_offset = self.next_offset
        other.image = self.image
        other.rng = replace(self.rng)
        other.sessions = BrokerSessions(self.config.session_timeout_ms)
        other.sessions._sessions = {
            broker: replace(session) for broker, session in self.sessions._sessions.items()
        }
        other.mutations, other.last_charge = MutationQuotas(WindowShape()), self.last_charge
        other.authorizer = self.authorizer  # it takes the image with each request
        other.log = list(self.log)
        other.images = list(self.images)
        other.ends = list(self.ends)
        other.records_left = None
        other.failover_count = 0
        return other

    def take(self, decision: Decision[R]) -> R:
        """Commit a decision, or as much of it as this controller lives for."""
        left, self.records_left = self.records_left, None
        if left is None or decision.is_atomic or left >= len(decision.records):
            if decision.records:
                self._append(decision.records)
            assert decision.image == self.image, "a decision carries what its records come to"
            return decision.reply
        for record in decision.records[:left]:
            self._append((record,))
        self.fail_over()
        raise RefusedError(ErrorCode.NOT_CONTROLLER)

    def _append(self, records: tuple[Record, ...]) -> None:
        self.image = fold.apply_all(self.image, records)
        self.next_offset = Offset(self.next_offset + len(records))
        self.log.extend(records)
        self.images.append(self.image)
        self.ends.append(self.next_offset)

    def fail_over(self) -> None:
        """Let another controller become active."""
        self.failover_count += 1
        self.records_left = None
        self.sessions.reset(self.image, self.now_ms)
        records = elections.elect_where_nobody_leads(self.image, self.config)
        self.take(decided(self.image, records, None))

    def fence(self, *ids: NodeId) -> tuple[NodeId, ...]:
        """Let the sessions of these end; all others are heard of just now."""
        for broker in self.image.brokers.values():
            if broker.id in ids:
                self.sessions.forget(broker.id)
            elif not broker.is_fenced:
                self.sessions.touch(broker.id, broker.epoch, Offset(-1), self.now_ms)
        return self.take(brokers.fence_expired(self.image, self.config, self.sessions, self.now_ms))

    def delta(self, base: MetadataImage, seen: int, until: int) -> MetadataDelta:
        """Return the way from one image to a later one, replayed by a broker."""
        delta = MetadataDelta(base)
        for record in self.log[self.ends[seen] : self.ends[until]]:
            delta.replay(record)
        delta.apply(Provenance(Offset(self.ends[until] - 1), Epoch(1), 0))
        return delta
