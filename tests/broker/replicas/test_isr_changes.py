"""AlterPartition requests of a leader, and its reaction to each response."""

from uuid import UUID

from ottla.broker.replicas.isr_changes import (
    ChangeOutcome,
    IsrChange,
    outcome_of,
    request_of,
    results_of,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId
from ottla.proto import controller_pb2 as pb


def change(topic: int, index: int) -> IsrChange:
    return IsrChange(
        topic_id=UUID(int=topic),
        index=index,
        leader_epoch=Epoch(3),
        partition_epoch=index,
        members=((NodeId(1), 7), (NodeId(2), -1)),
    )


def test_only_an_answer_that_is_certain_ends_a_change() -> None:
    certain = {
        code.name: outcome_of(code)
        for code in ErrorCode
        if outcome_of(code) in (ChangeOutcome.APPLIED, ChangeOutcome.REJECTED)
    }
    assert certain == {
        "NONE": ChangeOutcome.APPLIED,
        "INELIGIBLE_REPLICA": ChangeOutcome.REJECTED,
        "OPERATION_NOT_ATTEMPTED": ChangeOutcome.REJECTED,
    }


def test_an_isr_change_with_an_unknown_error_is_retried() -> None:
    for code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER, 9_999):
        assert outcome_of(code) is ChangeOutcome.UNKNOWN


def test_the_partitions_of_a_topic_stand_together_in_the_request() -> None:
    request = request_of(NodeId(1), 7, [change(1, 0), change(2, 5), change(1, 4)])
    asked = [
        (UUID(bytes=topic.topic_id).int, [one.partition_id for one in topic.partitions])
        for topic in request.topics
    ]
    assert asked == [(1, [0, 4]), (2, [5])]
    assert [one.partition_epoch for one in request.topics[0].partitions] == [0, 4]


def test_answers_are_found_by_topic_and_partition() -> None:
    response = pb.AlterPartitionResponse()
    for topic in (1, 2):
        results = response.topics.add(topic_id=UUID(int=topic).bytes).partitions
        results.add(partition_id=0, partition_epoch=10 * topic)
    found = results_of(response)
    assert found[UUID(int=2).bytes, 0].partition_epoch == 20
    assert (UUID(int=2).bytes, 1) not in found
