"""Finds the candidates for an unclean leader election. Each candidate has the end offset of its
replica's log and the number of records that the replica lacks."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from ottla.client.admin import Admin
from ottla.client.network.connection import open_connection
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_node_request import DescribeNodeRequest, WantedReplicas
from ottla.wire.messages.describe_node_response import DescribeNodeResponse, NodeReplica

ANSWER_TIMEOUT_S = 5.0
REPLICAS_PER_REQUEST = 500


class UncleanCandidate(NamedTuple):
    """Candidate for an unclean leader election: one replica of a partition without a leader."""

    partition: TopicPartition
    broker: int
    replica: NodeReplica | None
    """Description of the candidate replica by its broker. None if the broker does not respond or
    does not have the log."""

    @property
    def lacks(self) -> str:
        """Description, for the operator, of the records that this replica lacks."""
        if self.replica is None:
            return "not known: its broker does not answer, or has no log of it"
        if self.replica.loss is None:
            return "nothing that its disk remembers"
        return self.replica.loss

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Comparison key of candidates for an unclean election: the best candidate has the largest
        key. A candidate that loses no records is best. Otherwise, a larger last epoch is better,
        then a larger end offset."""
        found = self.replica
        if found is None:
            return (False, -2, -1)
        return (found.loss is None, found.last_epoch, found.end_offset)

    def row(self) -> tuple[object, ...]:
        """Return the candidate replica as a row of the table of candidates."""
        found = self.replica
        at = (self.partition.topic, self.partition.partition, self.broker)
        if found is None:
            return (*at, None, None, None, None, self.lacks)
        promised = found.promised_end_offset
        return (
            *at,
            found.last_epoch,
            found.end_offset,
            found.high_watermark,
            None if promised < 0 else promised,
            self.lacks,
        )


COLUMNS = (
    "TOPIC",
    "PARTITION",
    "BROKER",
    "LAST-EPOCH",
    "END",
    "HIGH-WATERMARK",
    "PROMISED-END",
    "LACKS",
)


async def candidates_of(
    admin: Admin, replicas: Mapping[TopicPartition, Sequence[int]]
) -> list[UncleanCandidate]:
    """Request the log end of each replica of the partitions from the replica's broker. Returns the
    candidates for an unclean election in the order of the partitions.

    If a broker does not respond within five seconds, the log end of its replica is unknown.
    """
    found: dict[tuple[TopicPartition, int], NodeReplica] = {}
    wanted: dict[int, list[TopicPartition]] = {}
    for at, brokers in replicas.items():
        for broker in brokers:
            wanted.setdefault(broker, []).append(at)
    addresses = {int(one.node): one for one in (await admin.describe_cluster()).brokers}

    async def ask(broker: int) -> None:
        address = addresses.get(broker)
        if address is None:
            return
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            try:
                async with open_connection(address.host, address.port) as connection:
                    for first in range(0, len(wanted[broker]), REPLICAS_PER_REQUEST):
                        some = wanted[broker][first : first + REPLICAS_PER_REQUEST]
                        answer = await connection.request(_request(some), DescribeNodeResponse)
                        for one in answer.replicas:
                            found[TopicPartition(one.topic, one.partition), broker] = one
            except OttlaError:
                return

    async with trio.open_nursery() as nursery:
        for broker in wanted:
            nursery.start_soon(ask, broker)
    return [
        UncleanCandidate(at, broker, found.get((at, broker)))
        for at, brokers in replicas.items()
        for broker in brokers
    ]


def best_first(
    candidates: Sequence[UncleanCandidate], replicas: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, list[int]]:
    """Return the replica list of each partition with the best candidate for an unclean election
    moved to the front. Partitions whose best candidate already precedes the other candidates are
    omitted.

    The controller elects the first live replica. If two candidates are equal, the earlier replica
    is preferred.
    """
    orders = {}
    for at, brokers in replicas.items():
        here = [one for one in candidates if one.partition == at and one.replica is not None]
        if not here:
            continue
        best = max(here, key=lambda one: one.rank).broker
        if next(one.broker for one in here) != best:
            orders[at] = [best, *(one for one in brokers if one != best)]
    return orders


def _request(partitions: Sequence[TopicPartition]) -> DescribeNodeRequest:
    by_topic: dict[str, list[int]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    return DescribeNodeRequest(
        replicas=[WantedReplicas(topic=name, partitions=some) for name, some in by_topic.items()]
    )
