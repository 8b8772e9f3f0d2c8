"""Builds Fetch responses as message objects from the results of partitions, grouped by topic.
Pure."""

from ottla.broker.logs.fetch_read import HINTS_FROM, PartitionResult
from ottla.broker.logs.leader_hints import HINTED, endpoints_of
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)


def add_results(
    response: FetchResponse,
    context: RequestContext,
    table: PartitionTable,
    results: list[PartitionResult],
) -> None:
    """Add the results of partitions to a Fetch response, grouped by topic. For partitions that this
    broker does not lead, the response also names their current leaders."""
    topics = {(one.topic, one.topic_id): one for one in response.responses[-1:]}
    leaders: set[int] = set()
    wants_hints = context.header.api_version >= HINTS_FROM
    for result in results:
        target, data = result.target, result.encodable()
        if data.error_code and wants_hints and data.error_code in HINTED:
            leader_id, leader_epoch = table.current_leader(
                target.topic, target.topic_id, target.index
            )
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leaders.add(leader_id)
        name = target.topic, target.topic_id
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchableTopicResponse(
                topic=target.topic, topic_id=target.topic_id, partitions=[data]
            )
            response.responses.append(topic)
        else:
            topic.partitions.append(data)
    if leaders:
        known = {node.node_id for node in response.node_endpoints}
        response.node_endpoints += [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in endpoints_of(
                table.image, leaders - known, context.peer.listener_name
            )
        ]
