"""Stores the partitions that a share group consumes, by the progress of their durable state. Pure.

The share coordinator must create the state of a partition before the partition is assigned. The
group records each creation or deletion that it waits for, so that a new group coordinator can
continue it (KIP-932).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.broker.coordinators.share_persister import NO_START_OFFSET


class TopicStates(NamedTuple):
    """Name of a topic, and its partitions whose durable states are at the same stage."""

    name: str
    partitions: frozenset[int]


class Initialization(NamedTuple):
    """Request to initialise the durable state of one share partition. A retry repeats the request
    unchanged. The first attempt may have succeeded, and a later value would undo the progress since
    then."""

    topic_id: UUID
    partition: int
    state_epoch: int
    start_offset: int = NO_START_OFFSET


class SharePartitions:
    """Partitions that one share group consumes, by the stage of their durable state. The mappings
    have no entries for topics without partitions."""

    __slots__ = ("attempts", "deleting", "initialized", "initializing", "starting")

    def __init__(self) -> None:
        self.initializing: dict[UUID, TopicStates] = {}
        """Partitions whose durable state is being created, by topic id. The share coordinator has
        not confirmed the request yet."""
        self.initialized: dict[UUID, TopicStates] = {}
        """Partitions whose durable state exists, by topic id. Only these partitions are assigned to
        members."""
        self.deleting: dict[UUID, str] = {}
        """Names of the topics whose durable states are being deleted, by topic id."""
        self.attempts: dict[tuple[UUID, int], Initialization] = {}
        """Initialisation requests that this coordinator has sent for the partitions in
        `initializing`, by topic id and partition index. They are not stored in the log."""
        self.starting: set[UUID] = set()
        """Ids of the topics whose first initialisation needs further rounds of requests. They are
        not stored in the log."""

    def missing(self, topic_id: UUID, count: int) -> list[int]:
        """Return the indexes of a topic's partitions, below `count`, whose durable state has not
        been requested."""
        known: set[int] = set()
        for states in (self.initializing, self.initialized):
            if topic_id in states:
                known |= states[topic_id].partitions
        return [] if len(known) >= count else [one for one in range(count) if one not in known]

    def is_known(self, topic_id: UUID) -> bool:
        """Return True if the share group has consumed the topic before. New partitions of such a
        topic are read from their start."""
        return topic_id in self.initialized or topic_id in self.initializing

    def topic_ids(self) -> set[UUID]:
        """Return the ids of all topics that the share group consumes, and of the topics whose
        durable states are being deleted."""
        return {*self.initializing, *self.initialized, *self.deleting}

    def states_of(self, topic_id: UUID) -> frozenset[int]:
        """Return the indexes of a topic's partitions whose durable state exists or may exist."""
        return frozenset().union(
            *(
                states[topic_id].partitions
                for states in (self.initializing, self.initialized)
                if topic_id in states
            )
        )

    # ---- changes

    def begin(self, name: str, wanted: Iterable[Initialization]) -> None:
        """Record that the group has requested durable states of partitions from the share
        coordinator. `wanted` lists these partitions, which belong to the topic `name`."""
        for one in wanted:
            self.attempts[one.topic_id, one.partition] = one
            _add(self.initializing, one.topic_id, name, (one.partition,))

    def finish(self, topic_id: UUID, name: str, partitions: Iterable[int]) -> None:
        """Record that the share coordinator has the durable states of a topic's `partitions`. These
        partitions can now be assigned to members."""
        found = frozenset(partitions)
        waiting = self.initializing.get(topic_id)
        if waiting is not None and waiting.partitions <= found:
            del self.initializing[topic_id]
        elif waiting is not None:
            rest = waiting.partitions - found
            self.initializing[topic_id] = TopicStates(waiting.name, rest)
        for one in found:
            self.attempts.pop((topic_id, one), None)
        _add(self.initialized, topic_id, name, found)

    def begin_deletion(self, topic_id: UUID, name: str) -> None:
        """Remove all partitions of a topic, and record that the share coordinator is deleting their
        durable states."""
        self.forget(topic_id)
        self.deleting[topic_id] = name

    def forget(self, topic_id: UUID) -> None:
        """Remove all partitions of a topic, since the share group no longer consumes it."""
        for states in (self.initializing, self.initialized):
            for one in states.pop(topic_id, TopicStates("", frozenset())).partitions:
                self.attempts.pop((topic_id, one), None)
        self.deleting.pop(topic_id, None)
        self.starting.discard(topic_id)

    def unfinished(self, state_epoch: int) -> Iterator[Initialization]:
        """Yield the requests to initialise durable states that are not confirmed. The requests of
        an earlier coordinator are unknown, so new requests with `state_epoch` replace them."""
        for topic_id, states in self.initializing.items():
            for partition in sorted(states.partitions):
                attempt = self.attempts.get((topic_id, partition))
                if attempt is None:
                    start = 0 if topic_id in self.initialized else NO_START_OFFSET
                    attempt = Initialization(topic_id, partition, state_epoch, start)
                    self.attempts[topic_id, partition] = attempt
                yield attempt

    def assignable(self, counts: Mapping[UUID, int]) -> dict[UUID, list[int]]:
        """Return the partitions that may be assigned to members, by topic id. `counts` maps each
        topic to its number of partitions."""
        found = {}
        for topic_id, count in counts.items():
            states = self.initialized.get(topic_id)
            if states is not None:
                indexes = sorted(one for one in states.partitions if one < count)
                if indexes:
                    found[topic_id] = indexes
        return found


def _add(
    states: dict[UUID, TopicStates], topic_id: UUID, name: str, partitions: Iterable[int]
) -> None:
    old = states.get(topic_id)
    known = frozenset[int]() if old is None else old.partitions
    states[topic_id] = TopicStates(name, known | frozenset(partitions))
