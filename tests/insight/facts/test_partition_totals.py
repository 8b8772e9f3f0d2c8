"""Numbers of partitions: equal to those of a survey that keeps every partition."""

from typing import Any

import pytest

from ottla.insight.facts.partition_totals_driver import read_partition_totals
from ottla.insight.facts.survey_driver import partitions_of
from ottla.insight.rules.health import partition_reasons
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class PlayedAdmin:
    """Admin client of a cluster with one metadata response. min.insync.replicas is unreadable."""

    def __init__(self, answer: MetadataResponse) -> None:
        self.cluster = self
        self.answer = answer

    async def request(self, request: Any, kind: Any) -> MetadataResponse:
        assert request.topics is None
        assert not request.allow_auto_topic_creation
        return self.answer

    async def try_describe_configs(self, resources: Any, keys: Any) -> Any:
        raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")


def topic(name: str, *partitions: tuple[int, list[int]]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        partitions=[
            MetadataResponsePartition(
                partition_index=number, leader_id=leader, replica_nodes=[1, 2], isr_nodes=isr
            )
            for number, (leader, isr) in enumerate(partitions)
        ],
    )


async def test_only_partitions_with_a_problem_are_kept() -> None:
    answer = MetadataResponse(
        topics=[
            topic("a", (1, [1, 2]), (2, [2])),
            topic("b", (-1, [1, 2])),
            topic("c", (-1, [])),
            MetadataResponseTopic(name="d", error_code=ErrorCode.LEADER_NOT_AVAILABLE),
        ]
    )
    admin: Any = PlayedAdmin(answer)

    found = await read_partition_totals(admin)

    assert (found.topic_count, found.partition_count) == (3, 4)
    assert [one.name for one in found.troubled] == ["a-1", "b-0", "c-0"]
    assert (found.leaderless_count, found.under_replicated_count) == (2, 2)
    for min_insync in {}, {"a": 2, "c": 2}:
        every = list(partition_reasons(partitions_of(answer), min_insync))
        assert list(partition_reasons(list(found.troubled), min_insync)) == every


async def test_a_broker_without_metadata_is_an_error() -> None:
    admin: Any = PlayedAdmin(MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
    with pytest.raises(RefusedError):
        await read_partition_totals(admin)
