"""Parts of transaction requests, and the error codes in their responses.  Pure."""

from collections.abc import Iterable, Mapping

from ottla.client.groups.group_offsets import Committed
from ottla.model.ids import Offset, TopicPartition
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnTopic
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse


def topics_to_add(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    """Convert partitions to the topics of an AddPartitionsToTxn request."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for at in partitions:
        topic = topics.setdefault(at.topic, AddPartitionsToTxnTopic(name=at.topic))
        topic.partitions.append(at.partition)
    return list(topics.values())


def topics_to_commit(
    offsets: Mapping[TopicPartition, int | Committed],
) -> list[TxnOffsetCommitRequestTopic]:
    """Convert offsets by partition to the topics of a TxnOffsetCommit request."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for at, offset in offsets.items():
        one = offset if isinstance(offset, Committed) else Committed(Offset(offset))
        topic = topics.setdefault(at.topic, TxnOffsetCommitRequestTopic(name=at.topic))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    return list(topics.values())


def codes_of(answer: Message) -> Iterable[int]:
    """Return the error codes in a response, which contains either a single code or one code for
    each partition."""
    if isinstance(answer, AddPartitionsToTxnResponse):
        return [
            one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]
    if isinstance(answer, TxnOffsetCommitResponse):
        return [one.error_code for topic in answer.topics for one in topic.partitions]
    assert isinstance(answer, InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse)
    return [answer.error_code]
