"""Moves of partitions that a stored balance plan contains. They are started a few at a time, until
the plan is empty.

All state is in the metadata log: the remaining moves, the reassignments in progress, and the
throttle. Each step is a function of the image, so a new controller can continue the plan. A step
ends complete moves, and starts further ones. Invariants:
- TwoMovesABroker: a broker takes part in at most two copies of the plan.
- NoMoveOfWeakPartitions: a move starts only if all replicas that the partition retains are in sync.
- ThrottleFromStartToEnd: the rates are set before the first copy and removed with the last move.
- The operator decides: a partition that a client reassigns or cancels is removed from the plan.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum

from ottla.controller.replication.balance_plan import (
    ThrottleLists,
    plan_records,
    rate_bounds,
    rate_in_force,
    rate_records,
    stored_moves,
)
from ottla.controller.replication.elections import TopicRules
from ottla.controller.replication.partition_change import Assignment, Election, change_partition
from ottla.controller.replication.reassignments import cancelled, towards, with_assignment
from ottla.controller.settings_in_force import min_insync_replicas
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.metadata.records import Record
from ottla.model.balance.domains import collisions
from ottla.model.balance.plan_text import StoredMove
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition
from ottla.model.settings.controller import ControllerConfig

MOVES_PER_BROKER = 2
"""Maximum number of simultaneous copies of a balance plan in which one broker takes part. With a
maximum of one, a broker is idle while a copy ends. With a larger maximum, the copies share the same
throttle, and each copy lasts longer."""

ELECTIONS_AT_ONCE = 100
"""Maximum number of leader elections in one step of a balance plan. More elections would interrupt
many clients at the same time."""

HOSTS_GONE_MAX = 1
"""Maximum number of hosts that may be down while moves of partitions start. With more, each further
loss of a host may cost records."""


class MoveStage(Enum):
    """Stage of one move of a partition in a balance plan."""

    GONE = "the partition was deleted, or is on other brokers than planned"
    DONE = "complete"
    MOVING = "under way"
    WAITING = "not started"


def stage_of(state: PartitionState | None, move: StoredMove) -> MoveStage:
    """Return the stage of a partition's move in a balance plan. `state` is the partition's state,
    or None if the partition does not exist."""
    if state is None:
        return MoveStage.GONE
    target = tuple(one for one in state.replicas if one not in state.removing)
    if state.adding or state.removing:
        return MoveStage.MOVING if target == move.after else MoveStage.GONE
    if state.replicas == move.after:
        return MoveStage.DONE
    return MoveStage.WAITING if state.replicas == move.before else MoveStage.GONE


def obstacle_of(
    image: MetadataImage,
    config: ControllerConfig,
    move: StoredMove,
    state: PartitionState,
) -> str | None:
    """Return the reason why a partition's move in a balance plan must wait, or None if the move may
    start."""
    for one in move.adding:
        broker = image.brokers.get(one)
        if broker is None or not broker.is_active:
            return f"broker {one} is down"
        if broker.is_cordoned:
            return f"broker {one} is cordoned"
    if state.leader == NO_NODE:
        return "it has no leader"
    late = [one for one in move.before if one in move.after and one not in state.isr]
    if late:
        return f"broker {late[0]} is not in sync"
    minimum = min(min_insync_replicas(image, config, move.at.topic), len(state.replicas))
    leaves_dead = any(not image.is_active(one) for one in move.before if one not in move.after)
    if len(state.isr) < minimum and not leaves_dead:
        return f"it has fewer than {minimum} replicas in sync"
    domains = {broker.id: (broker.rack, broker.host) for broker in image.brokers.values()}
    before, after = collisions(domains, move.before), collisions(domains, move.after)
    if after[0] > before[0] or after[1] > before[1]:
        return "replicas would share a rack or a host"
    return None


def advance(image: MetadataImage, config: ControllerConfig) -> list[Record]:
    """Return the metadata records of the next step of the balance plan, or an empty list if no step
    is due."""
    return _PlanStep(image, config).records() if stored_moves(image) else []


def undo(before: MetadataImage, image: MetadataImage, config: ControllerConfig) -> list[Record]:
    """Return the metadata records that cancel the moves of a removed balance plan and end its
    throttle. `before` is the last metadata image that contained the plan."""
    rules = TopicRules(image, config)
    lists = ThrottleLists(image)
    records: list[Record] = []
    for move in stored_moves(before):
        lists.remove(move)
        topic, state = _find(image, move)
        if topic is None or state is None or stage_of(state, move) is not MoveStage.MOVING:
            continue
        at = TopicIdPartition(topic.id, move.at.partition)
        try:
            record = cancelled(image, config, rules, topic, at, state)
        except RefusedError:
            continue  # Only the new replicas are in sync: the move goes on, as in KIP-455.
        records += [] if record is None else [record]
    return [*records, *lists.records(), *plan_records(image, ())]


def _find(image: MetadataImage, move: StoredMove) -> tuple[Topic | None, PartitionState | None]:
    topic = image.topic(move.at.topic)
    return topic, None if topic is None else topic.partitions.get(move.at.partition)


class _PlanStep:
    """One step of a balance plan. The step ends complete moves of partitions and starts further
    moves."""

    def __init__(self, image: MetadataImage, config: ControllerConfig) -> None:
        self._image = image
        self._config = config
        self._rules = TopicRules(image, config)
        self._lists = ThrottleLists(image)
        self._elections_left = ELECTIONS_AT_ONCE
        self._busy: Counter[NodeId] = Counter()

    def records(self) -> list[Record]:
        """Return the metadata records that this step of the balance plan writes."""
        moves = stored_moves(self._image)
        records: list[Record] = []
        ended: set[StoredMove] = set()
        waiting: list[StoredMove] = []
        for move in moves:
            _, state = _find(self._image, move)
            match stage_of(state, move):
                case MoveStage.MOVING:
                    self._busy.update(move.brokers)
                case MoveStage.WAITING:
                    waiting.append(move)
                case MoveStage.DONE if self._elections_left <= 0:
                    pass  # Its election is part of a later step.
                case _:
                    records += self._elect_preferred(move)
                    self._lists.remove(move)
                    ended.add(move)
        if _hosts_gone(self._image) <= HOSTS_GONE_MAX:
            for move in waiting:
                records += self._start(move)
        kept = [move for move in moves if move not in ended]
        if kept:
            records += _bounded_rate(self._image)
        return [*records, *self._lists.records(), *plan_records(self._image, kept)]

    def _elect_preferred(self, move: StoredMove) -> Iterator[Record]:
        """Yield the metadata record that elects the partition's preferred leader, if another
        replica leads."""
        topic, state = _find(self._image, move)
        if topic is None or state is None or state.replicas != move.after:
            return
        if state.leader != state.preferred_leader and state.preferred_leader in state.isr:
            yield from self._changed(topic, state, move, Election.PREFERRED, None)

    def _start(self, move: StoredMove) -> Iterator[Record]:
        """Yield the metadata record that starts the move of a partition. Yields nothing if its
        brokers are busy or the partition must wait."""
        if move.is_copy:
            if any(self._busy[one] >= MOVES_PER_BROKER for one in move.brokers):
                return
        elif self._elections_left <= 0:
            return
        topic, state = _find(self._image, move)
        assert topic is not None
        assert state is not None
        if obstacle_of(self._image, self._config, move, state) is not None:
            return
        if move.is_copy:
            self._busy.update(move.brokers)
            self._lists.add(move)
        election = Election.IF_NEEDED if move.is_copy else Election.PREFERRED
        target = towards(self._image, Assignment.of(state), move.after)
        yield from self._changed(topic, state, move, election, target)

    def _changed(
        self,
        topic: Topic,
        state: PartitionState,
        move: StoredMove,
        election: Election,
        target: Assignment | None,
    ) -> Iterator[Record]:
        if election is Election.PREFERRED:
            self._elections_left -= 1
        seen = state if target is None else with_assignment(state, target)
        record = change_partition(
            TopicIdPartition(topic.id, move.at.partition),
            state,
            self._rules.of(topic, seen),
            assignment=target,
            election=election,
        )
        if record is not None:
            yield record


def _bounded_rate(image: MetadataImage) -> Iterator[Record]:
    """Yield metadata records that set the replication throttle within its bounds. Yields nothing if
    the throttle is already set and within the bounds."""
    lowest, highest = rate_bounds(image)
    yield from rate_records(image, min(max(rate_in_force(image), lowest), highest))


def _hosts_gone(image: MetadataImage) -> int:
    """Return the number of hosts that have at least one inactive broker."""
    return len(
        {broker.host or str(broker.id) for broker in image.brokers.values() if not broker.is_active}
    )
