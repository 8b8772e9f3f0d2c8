"""An active controller for random walks: real decisions, and the history of all records and images.

A decision is committed at once, since brokers only see committed records. If a controller dies
between two appends, a decision that is not atomic may be committed only in part. The next
controller begins like a real one: all brokers get full sessions, and the controller runs the
elections that are still necessary.
"""

from dataclasses import replace

from ottla.controller.decision import Decision, R, decided
from ottla.controller.membership import brokers
from ottla.controller.membership.sessions import BrokerSessions
from ottla.controller.mutation_quotas import MutationQuotas
from ottla.controller.replication import elections
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata import fold
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, Provenance
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.quotas.rates import WindowShape


class ControllerHistory(InMemoryController):
    """An in-memory controller that keeps every metadata image it produced, for random walks."""

    def __init__(self, *, min_insync_replicas: int) -> None:
        self.log: list[Record] = []
        self.images: list[MetadataImage] = []
        """Metadata images that brokers may see, oldest first. Each append of records adds one."""
        self.ends: list[Offset] = []
        """Metadata offset after the last record of each image in `images`."""
        self.records_left: int | None = None
        """Number of records that the controller's next decision may append before the controller
        dies. None means that it does not die."""
        self.failover_count = 0
        super().__init__(min_insync_replicas=min_insync_replicas)

    def fork(self) -> "ControllerHistory":
        """Return an independent copy of the controller and its history."""
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
        other.authorizer = self.authorizer  # it gets the image with each request
        other.log = list(self.log)
        other.images = list(self.images)
        other.ends = list(self.ends)
        other.records_left = None
        other.failover_count = 0
        return other

    def take(self, decision: Decision[R]) -> R:
        """Commit the records of a controller decision, and return its response.

        If the controller dies before all records are appended, only the records appended so far are
        committed, and another controller takes over. Raises RefusedError in that case.
        """
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
        """Replace the active controller by another controller, as if the active one had died."""
        self.failover_count += 1
        self.records_left = None
        self.sessions.reset(self.image, self.now_ms)
        records = elections.elect_leaderless(self.image, self.config)
        self.take(decided(self.image, records, None))

    def fence(self, *ids: NodeId) -> tuple[NodeId, ...]:
        """Expire the sessions of the brokers `ids`, after a heartbeat of every other broker.
        Returns the ids of the brokers that the controller fenced."""
        for broker in self.image.brokers.values():
            if broker.id in ids:
                self.sessions.forget(broker.id)
            elif not broker.is_fenced:
                self.sessions.touch(broker.id, broker.epoch, Offset(-1), self.now_ms)
        return self.take(brokers.fence_expired(self.image, self.config, self.sessions, self.now_ms))

    def delta(self, base: MetadataImage, seen: int, until: int) -> MetadataDelta:
        """Return the delta from the metadata image `base` to a later one, computed as a broker
        replays it. `seen` and `until` are the indexes of both images."""
        delta = MetadataDelta(base)
        for record in self.log[self.ends[seen] : self.ends[until]]:
            delta.replay(record)
        delta.apply(Provenance(Offset(self.ends[until] - 1), Epoch(1), 0))
        return delta
