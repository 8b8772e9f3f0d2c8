"""The walk on replication, with somebody in the network who lies and repeats.

The forger knows everybody's number, but no broker's epoch: whoever knows that may speak for it.
"""

from collections.abc import Callable
from copy import deepcopy

from ottla.controller import partitions
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.violation import violation_in
from ottla.jepsen.world.walk.broker_life import BrokerLife
from ottla.jepsen.world.walk.replication_talk import AlterAsked, FetchAsked
from ottla.jepsen.world.walk.replication_walk import ReplicationWalk, WalkedCluster
from ottla.model.errors import RefusedError
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

STRANGER = 77
HEARD_MAX = 4
AHEAD = (1 << 62, 1, 1 << 32)
"""How far a forged epoch lies above the true one."""


class ForgedReplicationWalk(ReplicationWalk):
    """The engine."""

    subject = "replication-forged"
    required = (
        "a forged fetch is answered",
        "an ISR change is asked for twice in one request",
        "an ISR change arrives twice",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Walk one schedule of at most `budget` actions."""
        walk = ForgedWalk(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class ForgedWalk(WalkedCluster):
    """One cluster, and messages that nobody honest sent."""

    def __init__(self, chance: Chance) -> None:
        self._heard: list[tuple[BrokerLife, FetchRequest]] = []
        """What leaders were asked with partitions named, the newest last."""
        super().__init__(chance)
        self._is_healed = True

    def more_rows(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return what the forger does."""
        return (
            (self._forge_fetch, 10, True),
            (self._repeat_alter, 4, True),
            (self._forge_alter, 3, True),
        )

    def serve_fetch(self, asked: FetchAsked) -> None:
        """Let a fetch arrive at its leader, and the forger hear it."""
        if asked.request.topics:
            self._heard.append((asked.leader, deepcopy(asked.request)))
            del self._heard[:-HEARD_MAX]
        super().serve_fetch(asked)

    def _forge_fetch(self) -> None:
        """Ask a leader in a follower's name, under an epoch that was never registered."""
        heard = [one for one in self._heard if self.is_here(one[0])]
        if not heard:
            return
        leader, told = heard[self.chance.below(len(heard))]
        request: FetchRequest = deepcopy(told)
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
        """Let a leader's request for ISR changes arrive, and let it be under way still."""
        asked = [packet for packet in self.packets if isinstance(packet, AlterAsked)]
        if asked:
            self.rare.sometimes("an ISR change arrives twice")
            self.decide(asked[self.chance.below(len(asked))])

    def _forge_alter(self) -> None:
        """Ask the controller in a leader's name: each change twice, or under another epoch."""
        asked = [packet for packet in self.packets if isinstance(packet, AlterAsked)]
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
