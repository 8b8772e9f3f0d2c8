"""Random walk on replicated partitions with an attacker in the network, who forges and repeats
messages.

The attacker knows all node ids, but no broker epoch, because a node that knows the epoch may act
for the broker.
"""

from collections.abc import Callable
from copy import deepcopy

from ottla.controller.replication import partitions
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.violation import violation_in
from ottla.jepsen.world.walk.replication.broker_life import BrokerLife
from ottla.jepsen.world.walk.replication.replication_messages import AlterCall, FetchCall
from ottla.jepsen.world.walk.replication.replication_walk import ReplicationWalk, WalkedCluster
from ottla.model.errors import RefusedError
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

STRANGER = 77
HEARD_MAX = 4
AHEAD = (1 << 62, 1, 1 << 32)
"""Numbers that the attacker adds to a real epoch to forge an epoch."""


class ForgedReplicationWalk(ReplicationWalk):
    """Search engine that tests replication by random walks with forged requests."""

    subject = "replication-forged"
    required = (
        "a forged fetch is answered",
        "an ISR change is asked for twice in one request",
        "an ISR change arrives twice",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` actions, with random choices from `chance`.
        Returns the outcome."""
        walk = ForgedWalk(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class ForgedWalk(WalkedCluster):
    """Simulated cluster that also receives forged messages, which no honest node has sent."""

    def __init__(self, chance: Chance) -> None:
        self._heard: list[tuple[BrokerLife, FetchRequest]] = []
        """Fetch requests that the attacker overheard and that name partitions, the newest last,
        each with the process that received it."""
        super().__init__(chance)
        self._is_healed = True

    def more_rows(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return (action, weight, is_needed) for each action of the attacker. An action with
        `is_needed` is part of every run."""
        return (
            (self._forge_fetch, 10, True),
            (self._repeat_alter, 4, True),
            (self._forge_alter, 3, True),
        )

    def serve_fetch(self, asked: FetchCall) -> None:
        """Deliver a follower's fetch request to its leader. The attacker overhears the request."""
        if asked.request.topics:
            self._heard.append((asked.leader, deepcopy(asked.request)))
            del self._heard[:-HEARD_MAX]
        super().serve_fetch(asked)

    def _forge_fetch(self) -> None:
        """Send a leader a fetch that claims to be a follower's, with a broker epoch that was never
        registered."""
        heard = [one for one in self._heard if self.is_here(one[0])]
        if not heard:
            return
        leader, original = heard[self.chance.below(len(heard))]
        request: FetchRequest = deepcopy(original)
        state = request.replica_state
        others = [*range(1, len(self.machines) + 1), STRANGER]
        state.replica_id = others[self.chance.below(len(others))]
        state.replica_epoch += AHEAD[self.chance.below(len(AHEAD))]
        if self.chance.below(2):
            request.session_id, request.session_epoch = 0, -1
        for topic in request.topics:
            for partition in topic.partitions:
                partition.fetch_offset = self.chance.below(60) - 1
                partition.log_start_offset = self.chance.below(60) - 1

        def answer(response: FetchResponse) -> None:
            self.rare.sometimes("a forged fetch is answered")

        leader.fetch(request, self.now_ms, answer)
        self.trace.add("forged fetch", leader.machine.id, state.replica_id)

    def _repeat_alter(self) -> None:
        """Deliver a leader's AlterPartition request twice."""
        asked = [packet for packet in self.packets if isinstance(packet, AlterCall)]
        if asked:
            self.rare.sometimes("an ISR change arrives twice")
            self.decide(asked[self.chance.below(len(asked))])

    def _forge_alter(self) -> None:
        """Send the controller an AlterPartition request in a leader's name, with each change twice
        or with a forged epoch."""
        asked = [packet for packet in self.packets if isinstance(packet, AlterCall)]
        if not asked:
            return
        request = deepcopy(asked[self.chance.below(len(asked))].request)
        if self.chance.below(2):
            request.broker_epoch += AHEAD[self.chance.below(len(AHEAD))]
        else:
            self.rare.sometimes("an ISR change is asked for twice in one request")
            for topic in request.topics:
                topic.partitions.extend([deepcopy(each) for each in topic.partitions])
        before = self.controller.image
        try:
            self.controller.take(
                partitions.alter_partition(before, self.controller.config, request)
            )
        except RefusedError:
            self.rare.sometimes("a forged ISR change is refused")
