"""`ottla status`: is the cluster healthy, and if not, why not."""

import argparse
from typing import Any

import trio

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    counted,
    print_json,
    table,
)
from ottla.cli.common import run_async as run_to_end
from ottla.client.cluster import Cluster, open_cluster, raise_for
from ottla.client.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import METADATA_TOPIC, NodeId
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.metadata_response import MetadataResponse

HEALTHY = 0
UNHEALTHY = 2
TIMEOUT_S = 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of 'ottla status'."""
    add_cluster_arguments(parser)
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the state of the cluster; exit code 0 when healthy, 2 when not."""

    async def body() -> int:
        try:
            with trio.fail_after(TIMEOUT_S):
                async with open_cluster(bootstrap_of(arguments)) as cluster:
                    found = await status_of(cluster)
        except trio.TooSlowError:
            raise ConnectionLostError(f"the cluster did not answer in {TIMEOUT_S:g} s") from None
        if arguments.format == "json":
            print_json(found)
        else:
            print(shown(found))
        return HEALTHY if found["healthy"] else UNHEALTHY

    return run_to_end(body)


async def status_of(cluster: Cluster) -> dict[str, Any]:
    """Ask the cluster and return its state as the JSON says it."""
    reasons: list[str] = []
    try:
        metadata = await cluster.metadata()
    except (RefusedError, ConnectionLostError):
        return await _starting(cluster)
    quorum = await _quorum(cluster, reasons)
    brokers = [await _broker(cluster, row, reasons) for row in metadata.brokers]
    partitions = _partitions(metadata, reasons)
    return {
        "healthy": not reasons,
        "reasons": reasons,
        "cluster_id": metadata.cluster_id,
        "quorum": quorum,
        "brokers": sorted(brokers, key=lambda broker: int(broker["id"])),
        "partitions": partitions,
    }


async def _starting(cluster: Cluster) -> dict[str, Any]:
    """A broker that is not running yet answers only for itself."""
    node = await cluster.request(DescribeNodeRequest(), DescribeNodeResponse)
    reason = f"broker {node.node_id} is not serving yet: {node.state}"
    for row in node.recovery:
        if row.bytes_total:
            reason += f", {row.log_dir} recovered {100 * row.bytes_done // row.bytes_total} %"
    return {
        "healthy": False,
        "reasons": [reason],
        "cluster_id": None,
        "quorum": {"leader_id": -1, "epoch": -1, "high_watermark": -1, "voters": []},
        "brokers": [{"id": node.node_id, "state": node.state}],
        "partitions": {"total": 0, "leaderless": 0, "under_replicated": 0},
    }


async def _quorum(cluster: Cluster, reasons: list[str]) -> dict[str, Any]:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])]
    )
    try:
        answer = await cluster.request(request, DescribeQuorumResponse)
        raise_for(answer.error_code, answer.error_message)
        found = answer.topics[0].partitions[0]
        raise_for(found.error_code, found.error_message)
    except RefusedError as error:
        reasons.append(f"the controller quorum does not answer: {error.message}")
        return {"leader_id": -1, "epoch": -1, "high_watermark": -1, "voters": []}
    return {
        "leader_id": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "voters": [
            {"id": voter.replica_id, "log_end_offset": voter.log_end_offset}
            for voter in found.current_voters
        ],
    }


async def _broker(cluster: Cluster, row: Any, reasons: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"id": row.node_id, "address": f"{row.host}:{row.port}"}
    try:
        node = await cluster.request(
            DescribeNodeRequest(), DescribeNodeResponse, node=NodeId(row.node_id)
        )
        found["state"] = node.state
        found["metrics"] = {metric.name: metric.value for metric in node.metrics}
    except (ConnectionLostError, RefusedError) as error:
        found["state"] = "unreachable"
        reasons.append(f"broker {row.node_id}: {error}")
    return found


def _partitions(metadata: MetadataResponse, reasons: list[str]) -> dict[str, int]:
    partitions = [(topic, row) for topic in metadata.topics for row in topic.partitions]
    leaderless = [
        f"{topic.name}-{row.partition_index}"
        for topic, row in partitions
        if row.leader_id < 0 or row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    ]
    under_replicated = [
        f"{topic.name}-{row.partition_index}"
        for topic, row in partitions
        if len(row.isr_nodes) < len(row.replica_nodes)
    ]
    for what, found in (("without leader", leaderless), ("under-replicated", under_replicated)):
        if found:
            some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
            reasons.append(f"{counted(len(found), 'partition')} {what}: {some}")
    return {
        "total": len(partitions),
        "leaderless": len(leaderless),
        "under_replicated": len(under_replicated),
    }


def shown(found: dict[str, Any]) -> str:
    """Return the state as a person reads it."""
    quorum, partitions = found["quorum"], found["partitions"]
    rows = [(b["id"], b.get("address"), b["state"]) for b in found["brokers"]]
    lines = ["healthy" if found["healthy"] else "NOT HEALTHY"]
    lines += [f"  {reason}" for reason in found["reasons"]]
    lines += [
        "",
        f"quorum      leader {quorum['leader_id']}, epoch {quorum['epoch']}, "
        f"high watermark {quorum['high_watermark']}, "
        f"voters {', '.join(str(v['id']) for v in quorum['voters']) or '-'}",
        f"partitions  {partitions['total']}, {partitions['leaderless']} without leader, "
        f"{partitions['under_replicated']} under-replicated",
        "",
        table(("BROKER", "ADDRESS", "STATE"), rows),
    ]
    return "\n".join(lines)
