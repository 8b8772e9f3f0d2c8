"""ISR changes that a leader requests from the controller (AlterPartition): their types, encoding
and results.

Pure. A change is a compare-and-set on the partition's leader epoch and partition epoch. The
controller applies it at most once, and not after the partition epoch has advanced. If a response is
lost, both results are possible. The leader then uses the larger ISR (`Partition.maximal_isr`) until
it knows the result. The result follows from a later response about this change, or from metadata
with a newer partition epoch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2

UNKNOWN_BROKER_EPOCH = -1
"""Broker epoch in an ISR change for a replica that has not fetched in this leader epoch. The
controller does not check this epoch."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsrChange:
    """One change of a partition's ISR. The leader epoch and partition epoch identify the state
    before the change.

    Every change also reports that the leader has recovered. The leader's log then defines the
    contents of the partition (KIP-704).
    """

    topic_id: UUID
    index: int
    leader_epoch: Epoch
    partition_epoch: int
    members: tuple[tuple[NodeId, int], ...]
    """Ids of the proposed in-sync replicas, each with the broker epoch of its fetches (KIP-903)."""

    @property
    def isr(self) -> frozenset[NodeId]:
        """Ids of the proposed in-sync replicas, without their broker epochs."""
        return frozenset(member for member, _ in self.members)


class ChangeOutcome(Enum):
    """Outcome of one ISR change: applied, rejected, overtaken or unknown."""

    APPLIED = "it is committed, and the answer holds the partition's state"
    REJECTED = "it was not applied and never will be"
    OVERTAKEN = "the partition has moved on; whether with this change, newer metadata will tell"
    UNKNOWN = "it may have been applied: ask again, with the same change"


REJECTED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
"""Error codes after which an ISR change was certainly not made: the controller rejected it although
its partition epoch was right."""

OVERTAKEN = frozenset(
    (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Error codes that the controller may also return for the repetition of a change that it has
already made. The result is then known only from the metadata."""


def outcome_of(code: int) -> ChangeOutcome:
    """Return the outcome of an ISR change. `code` is the error code for its partition in the
    controller's response."""
    if code == ErrorCode.NONE:
        return ChangeOutcome.APPLIED
    if code in REJECTED:
        return ChangeOutcome.REJECTED
    if code in OVERTAKEN:
        return ChangeOutcome.OVERTAKEN
    return ChangeOutcome.UNKNOWN


def request_of(
    broker_id: NodeId, broker_epoch: int, changes: Iterable[IsrChange]
) -> pb.AlterPartitionRequest:
    """Return one AlterPartition request for all ISR changes."""
    by_topic: dict[UUID, list[pb.AlterPartitionProposal]] = {}
    for change in changes:
        by_topic.setdefault(change.topic_id, []).append(
            pb.AlterPartitionProposal(
                partition_id=change.index,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
                new_isr=[
                    pb.BrokerState(broker_id=member, broker_epoch=epoch)
                    for member, epoch in change.members
                ],
                leader_recovery_state=metadata_pb2.RECOVERED,
            )
        )
    return pb.AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[
            pb.AlterPartitionTopic(topic_id=topic_id.bytes, partitions=proposals)
            for topic_id, proposals in by_topic.items()
        ],
    )


def results_of(
    response: pb.AlterPartitionResponse,
) -> dict[tuple[bytes, int], pb.AlterPartitionResult]:
    """Return the results in an AlterPartition response, by topic id and partition index."""
    return {
        (topic.topic_id, result.partition_id): result
        for topic in response.topics
        for result in topic.partitions
    }
