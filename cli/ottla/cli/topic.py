"""`ottla topic create|list|describe|delete`."""

import argparse
from typing import Any
from uuid import UUID

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    print_json,
    print_table,
    run_async,
)
from ottla.client.cluster import Cluster, open_cluster, raise_for
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.metadata_response import MetadataResponseTopic

DELETE_BY_NAME_VERSION = 5
REQUEST_TIMEOUT_MS = 30_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla topic'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="create topics")
    create.add_argument("names", nargs="+", metavar="NAME")
    create.add_argument("--partitions", "-p", type=int, default=-1)
    create.add_argument("--replication-factor", "--replicas", "-r", type=int, default=-1)
    create.add_argument("--config", "-c", action="append", default=[], metavar="KEY=VALUE")
    create.add_argument("--if-not-exists", action="store_true")
    list_ = verbs.add_parser("list", help="list topics")
    list_.add_argument("--internal", action="store_true", help="show internal topics too")
    describe = verbs.add_parser("describe", help="show a topic's partitions")
    describe.add_argument("names", nargs="+", metavar="NAME")
    delete = verbs.add_parser("delete", help="delete topics")
    delete.add_argument("names", nargs="+", metavar="NAME")
    for verb in (create, list_, describe, delete):
        add_cluster_arguments(verb)
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_cluster(bootstrap_of(arguments)) as cluster:
            return await VERBS[arguments.verb](cluster, arguments)

    return run_async(body)


async def create(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Create every named topic, or say why not."""
    configs = [_config(text) for text in arguments.config]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=arguments.partitions,
                replication_factor=arguments.replication_factor,
                configs=configs,
            )
            for name in arguments.names
        ],
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    answer = await cluster.request(request, CreateTopicsResponse)
    for topic in answer.topics:
        exists = topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        if not (exists and arguments.if_not_exists):
            raise_for(topic.error_code, f"topic {topic.name!r}: {topic.error_message}")
    rows = [(t.name, t.num_partitions, t.replication_factor) for t in answer.topics]
    _show(arguments, ("NAME", "PARTITIONS", "REPLICAS"), rows)
    return 0


async def list_topics(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """List every topic."""
    topics = (await cluster.metadata()).topics
    rows = [
        (topic.name, len(topic.partitions), len(topic.partitions[0].replica_nodes))
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if arguments.internal or not topic.is_internal
    ]
    _show(arguments, ("NAME", "PARTITIONS", "REPLICAS"), rows)
    return 0


async def describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show each partition of each named topic."""
    answer = await cluster.metadata(arguments.names)
    for topic in answer.topics:
        raise_for(topic.error_code, f"there is no topic {topic.name!r}; see 'ottla topic list'")
    if arguments.format == "json":
        print_json([_topic_json(topic) for topic in answer.topics])
        return 0
    for topic in answer.topics:
        print(f"{topic.name}  id {topic.topic_id}\n")
        print_table(
            ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE"),
            [
                (
                    partition.partition_index,
                    partition.leader_id,
                    partition.leader_epoch,
                    partition.replica_nodes,
                    partition.isr_nodes,
                    partition.offline_replicas,
                )
                for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
            ],
        )
    return 0


async def delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Delete every named topic, or say why not."""
    request = DeleteTopicsRequest(topic_names=arguments.names, timeout_ms=REQUEST_TIMEOUT_MS)
    answer = await cluster.request(request, DeleteTopicsResponse, version=DELETE_BY_NAME_VERSION)
    for topic in answer.responses:
        raise_for(topic.error_code, f"topic {topic.name!r}: {_meaning(topic)}")
    _show(arguments, ("DELETED",), [(name,) for name in arguments.names])
    return 0


VERBS = {"create": create, "list": list_topics, "describe": describe, "delete": delete}


def _show(
    arguments: argparse.Namespace, headers: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    if arguments.format == "json":
        print_json([dict(zip(map(str.lower, headers), row, strict=True)) for row in rows])
    else:
        print_table(headers, rows)


def _topic_json(topic: MetadataResponseTopic) -> dict[str, Any]:
    assert isinstance(topic.topic_id, UUID)
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
                "offline": partition.offline_replicas,
            }
            for partition in topic.partitions
        ],
    }


def _meaning(topic: Any) -> str:
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "it does not exist; see 'ottla topic list'"
    return topic.error_message or RefusedError(ErrorCode(topic.error_code)).message


def _config(text: str) -> CreatableTopicConfig:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--config", f"is {text!r}; it must be KEY=VALUE")
    return CreatableTopicConfig(name=key.strip(), value=value.strip())
