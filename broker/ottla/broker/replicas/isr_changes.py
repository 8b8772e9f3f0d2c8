"""What a leader asks of the controller about its in-sync replicas, and what the answers mean.

Pure.  A change is a compare-and-set on the partition's leader and partition epoch: the controller
applies it once or never, and never after the partition has moved on.  So an answer that was lost
leaves two possibilities open, and the leader keeps both in force (`Partition.maximal_isr`) until it
knows more.  Only two things end that: an answer that says what became of exactly this change, or
metadata with a newer partition epoch.
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
"""Of a replica that has not fetched in this leader's epoch; the controller does not check it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsrChange:
    """One change of one partition's in-sync replicas, from the state named by its two epochs.

    The leader says with every change that it has recovered: whatever its log holds is from now on
    what the partition holds (KIP-704).
    """

    topic_id: UUID
    index: int
    leader_epoch: Epoch
    partition_epoch: int
    members: tuple[tuple[NodeId, int], ...]
    """The replicas that shall be in sync, each with the broker epoch it fetched with (KIP-903)."""

    @property
    def isr(self) -> frozenset[NodeId]:
        """The replicas that shall be in sync."""
        return frozenset(member for member, _ in self.members)


class ChangeOutcome(Enum):
    """What an answer says about one change."""

    APPLIED = "it is committed, and the answer holds the partition's state"
    REJECTED = "it was not applied and never will be"
    OVERTAKEN = "the partition has moved on; whether with this change, newer metadata will tell"
    UNKNOWN = "it may have been applied: ask again, with the same change"


REJECTED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
"""These say that the partition epoch was right and the change was not made."""

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
"""An answer that was lost may have told of success before: only the metadata knows."""


def outcome_of(code: int) -> ChangeOutcome:
    """Say what a partition's error code means for the change it answers."""
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
    """Build the one request for all these changes."""
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
    """Return the answers by topic id and partition."""
    return {
        (topic.topic_id, result.partition_id): result
        for topic in response.topics
        for result in topic.partitions
    }
