"""Response of DescribeQuorum, from the state of the quorum's leader (KIP-595, KIP-836)."""

from collections.abc import Iterable, Iterator

from ottla.controller.decision import Context, Decision, QuorumStatus, ReplicaStatus, decided
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID
from ottla.raft.progress import QuorumProgress
from ottla.raft.progress import ReplicaProgress as RaftReplicaStatus
from ottla.raft.transitions import Standing
from ottla.raft.voters import VoterSet
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

DIRECTORIES_FROM = 2
"""First version of DescribeQuorum whose response contains directory ids and endpoints (KIP-853)."""

UNKNOWN_INSTANT_MS = -1

WITHOUT_VOTE = {
    Standing.CATCHING_UP: (
        "controller {} follows without a vote: its disk lost metadata that it had acknowledged; it"
        " votes again by itself once it has caught up; check its disk and its log (quorum.damaged)"
    ),
    Standing.AMNESIAC: (
        "controller {} follows without a vote: its disk lost its epoch and vote; it votes again by"
        " itself once every other controller has answered it and it has caught up; start those that"
        " are down, and check its disk and its log (quorum.damaged)"
    ),
}
"""Explanations for operators why a controller has no vote, by the controller's `Standing` (the
extent to which it can keep its earlier votes and acknowledgements)."""

SENTENCES = "\n"
"""Separator between the descriptions of the quorum's problems in one error message."""

PARTITIONS_MAX = 1_000
"""Maximum number of partitions in a DescribeQuorum request, although only one partition has a
quorum. With a lower limit, a client that requests all of its partitions would be refused. With a
higher limit, a client could request a large and useless response."""


def quorum_status(
    description: QuorumProgress,
    voters: VoterSet,
    *,
    problems: tuple[str, ...],
    warnings: tuple[str, ...] = (),
    now_ms: int,
    wall_ms: int,
) -> QuorumStatus:
    """Return the state of the metadata quorum as its leader sees it. Times of the monotonic clock
    are converted to wall time."""

    def wall(monotonic_ms: int) -> int:
        if monotonic_ms == UNKNOWN_INSTANT_MS:
            return UNKNOWN_INSTANT_MS
        return wall_ms - (now_ms - monotonic_ms)

    def replica(status: RaftReplicaStatus) -> ReplicaStatus:
        endpoints = voters.endpoints_of(status.key.id)
        return ReplicaStatus(
            id=status.key.id,
            directory_id=status.key.directory_id,
            end_offset=status.end_offset,
            last_fetch_ms=wall(status.last_fetch_ms),
            last_caught_up_ms=wall(status.last_caught_up_ms),
            endpoints=tuple((name, host, port) for name, host, port in endpoints),
        )

    return QuorumStatus(
        leader_id=description.leader_id,
        leader_epoch=description.leader_epoch,
        high_watermark=description.high_watermark,
        voters=tuple(map(replica, description.voters)),
        observers=tuple(map(replica, description.observers)),
        problems=(*problems, *_without_vote(description.voters)),
        warnings=warnings,
    )


def _without_vote(voters: Iterable[RaftReplicaStatus]) -> Iterator[str]:
    for voter in voters:
        if voter.standing in WITHOUT_VOTE:
            yield WITHOUT_VOTE[voter.standing].format(voter.key.id)


def describe_quorum(
    image: MetadataImage, context: Context, request: DescribeQuorumRequest
) -> Decision[DescribeQuorumResponse]:
    """Return the description of the quorum of `__cluster_metadata-0`. No other partition has a
    quorum.

    A partition that occurs twice in the request is described once. Raises
    RefusedError(INVALID_REQUEST) for more than PARTITIONS_MAX partitions.
    """
    status, version = context.quorum_status(), context.api_version
    count = sum(len(topic.partitions) for topic in request.topics)
    if max(count, len(request.topics)) > PARTITIONS_MAX:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Only {METADATA_TOPIC}-0 has a quorum; the request names {count} partitions",
        )
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        indexes = (partition.partition_index for partition in topic.partitions)
        asked.setdefault(topic.topic_name, {}).update(dict.fromkeys(indexes))
    topics = [
        TopicData(
            topic_name=name,
            partitions=[_partition(status, name, index, version) for index in indexes],
        )
        for name, indexes in asked.items()
    ]
    nodes = [
        Node(
            node_id=voter.id,
            listeners=[
                Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints
            ],
        )
        for voter in (status.voters if version >= DIRECTORIES_FROM else ())
    ]
    answer = DescribeQuorumResponse(
        # Like the problems, with Kafka's error code NONE: `ottla status` shows the warnings.
        error_message=SENTENCES.join(status.warnings) or None,
        topics=topics,
        nodes=nodes,
    )
    return decided(image, (), answer)


def _partition(status: QuorumStatus, topic: str, index: int, version: int) -> PartitionData:
    if topic != METADATA_TOPIC or index != 0:
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="This server does not host this topic-partition.",
        )
    return PartitionData(
        partition_index=0,
        # A message with Kafka's error code NONE: `ottla quorum status` shows the problems.
        error_message=SENTENCES.join(status.problems) or None,
        leader_id=status.leader_id,
        leader_epoch=status.leader_epoch,
        high_watermark=status.high_watermark,
        current_voters=[_replica(voter, version) for voter in status.voters],
        observers=[_replica(observer, version) for observer in status.observers],
    )


def _replica(status: ReplicaStatus, version: int) -> ReplicaState:
    return ReplicaState(
        replica_id=status.id,
        replica_directory_id=status.directory_id if version >= DIRECTORIES_FROM else ZERO_UUID,
        log_end_offset=status.end_offset,
        last_fetch_timestamp=status.last_fetch_ms,
        last_caught_up_timestamp=status.last_caught_up_ms,
    )
