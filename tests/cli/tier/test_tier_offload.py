"""`ottla tier offload` against a cluster."""

import json
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.cli.main import OK, UNHEALTHY
from ottla.cli.tier import tier_offload
from ottla.cli.tier.tier_offload import PARTITIONS_PER_REQUEST, offload
from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.messages.offload_logs_request import OffloadLogsRequest
from ottla.wire.messages.offload_logs_response import (
    OffloadLogsPartitionResult,
    OffloadLogsResponse,
    OffloadLogsTopicResult,
)


def arguments(*names: str) -> Namespace:
    return Namespace(names=list(names), broker=None, dry_run=True, format="json")


async def test_a_topic_that_is_not_tiered_is_refused_with_a_remedy() -> None:
    with trio.fail_after(30):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partition_count=1)
            message = "it is not on this broker"
            while "it is not on this broker" in message:  # its log is created soon
                with pytest.raises(RefusedError) as refused:
                    await offload(admin, arguments("orders"))
                message = str(refused.value)
            assert "set remote.storage.enable=true" in message
            with pytest.raises(RefusedError, match="no partition 7"):
                await offload(admin, arguments("orders:7"))


class Cluster:
    """A broker that has offloaded each even partition, and refuses the others."""

    def __init__(self) -> None:
        self.requests: list[OffloadLogsRequest] = []

    async def request(
        self, request: OffloadLogsRequest, kind: type, *, node: NodeId
    ) -> OffloadLogsResponse:
        self.requests.append(request)
        rows = [
            OffloadLogsPartitionResult(partition_index=at, segment_count=2, size_bytes=9)
            if at % 2 == 0
            else OffloadLogsPartitionResult(
                partition_index=at, error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message="bad"
            )
            for topic in request.topics
            for at in topic.partitions
        ]
        return OffloadLogsResponse(topics=[OffloadLogsTopicResult(name="orders", partitions=rows)])


@pytest.mark.parametrize(("count", "code"), [(1, OK), (45, UNHEALTHY)])
async def test_refusals_of_some_partitions_have_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], count: int, code: int
) -> None:
    async def replicas_of(*_: Any) -> dict[NodeId, set[TopicPartition]]:
        return {NodeId(1): {TopicPartition("orders", at) for at in range(count)}}

    monkeypatch.setattr(tier_offload, "replicas_of", replicas_of)
    cluster = Cluster()
    admin = cast("Admin", SimpleNamespace(cluster=cluster))
    assert await offload(admin, arguments("orders")) == code
    assert len(cluster.requests) == -(-count // PARTITIONS_PER_REQUEST)
    assert all(request.validate_only for request in cluster.requests)
    shown = capsys.readouterr()
    rows = json.loads(shown.out)
    assert [row["partition"] for row in rows] == [f"orders:{at}" for at in range(0, count, 2)]
    assert rows[0] == {
        "partition": "orders:0",
        "broker": 1,
        "segments": 2,
        "size_bytes": 9,
        "local_start_offset": 0,
    }
    assert ("orders-1 on broker 1: bad" in shown.err) == (count > 1)
