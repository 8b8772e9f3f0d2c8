"""Numbers of the cluster's partitions, for pages that show them every few seconds.

One request returns the metadata of all partitions. Objects are created only for partitions with a
problem, because a cluster may have 100,000 healthy partitions.
"""

from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.survey_driver import (
    SurveyedPartition,
    min_insync_of,
    surveyed_partition,
)
from ottla.model.values import frozen
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse


@frozen(kw_only=True)
class PartitionTotals:
    """Numbers of partitions, and the partitions with a problem."""

    topic_count: int
    partition_count: int
    troubled: tuple[SurveyedPartition, ...] = ()
    """Partitions without a leader, or with a replica that is not in sync, in the broker's order."""
    min_insync: dict[str, int]
    """min.insync.replicas of each topic that has under-replicated partitions."""

    @property
    def leaderless_count(self) -> int:
        """Number of partitions without a leader."""
        return sum(one.leader_id < 0 for one in self.troubled)

    @property
    def under_replicated_count(self) -> int:
        """Number of partitions with a replica that is not in sync."""
        return sum(one.is_under_replicated for one in self.troubled)


async def read_partition_totals(admin: Admin) -> PartitionTotals:
    """Return the numbers of all partitions that the user may describe.

    Raises RefusedError if the broker that responds cannot return metadata yet.
    """
    # The client does not keep the leaders: its other requests ask for those that they need.
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = await admin.cluster.request(request, MetadataResponse)
    raise_for(answer.error_code)
    troubled = troubled_of(answer)
    return PartitionTotals(
        topic_count=sum(bool(topic.partitions) for topic in answer.topics),
        partition_count=sum(len(topic.partitions) for topic in answer.topics),
        troubled=troubled,
        min_insync=await min_insync_of(admin, troubled),
    )


def troubled_of(answer: MetadataResponse) -> tuple[SurveyedPartition, ...]:
    """Return the partitions in a metadata response without a leader, or with a replica that is not
    in sync."""
    return tuple(
        surveyed_partition(topic, row)
        for topic in answer.topics
        for row in topic.partitions
        if row.leader_id < 0 or len(row.isr_nodes) < len(row.replica_nodes)
    )
