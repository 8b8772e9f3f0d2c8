"""`ottla topic create|list|describe|delete`, and the verbs of `topic_changes` and `reassign`."""

import argparse
from typing import Any

from ottla.cli.cluster.reassign import configure_reassign, reassign
from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    print_json,
    run_async,
    table,
)
from ottla.cli.outcomes import show
from ottla.cli.terminal import say_block
from ottla.cli.topics.topic_changes import CHANGES, configure_changes
from ottla.client.cluster import Cluster, open_cluster, raise_for
from ottla.model.errors import ConfigError, ErrorCode, row_of
from ottla.storage.meta_properties import uuid_to_text
from ottla.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from ottla.wire.messages.metadata_response import MetadataResponseTopic

DELETE_BY_NAME_VERSION = 5
REQUEST_TIMEOUT_MS = 30_000
TOPIC_COLUMNS = ("NAME", "PARTITIONS", "REPLICAS")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla topic'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="create topics")
    create.add_argument("names", nargs="+", metavar="NAME")
    create.add_argument(
        "-p",
        "--partitions",
        type=int,
        default=-1,
        metavar="COUNT",
        help="how many (default: the broker's num.partitions)",
    )
    create.add_argument(
        "-r",
        "--replication-factor",
        "--replicas",
        type=int,
        default=-1,
        metavar="COUNT",
        help="on how many brokers (default: the broker's default.replication.factor)",
    )
    create.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topic; may be given more than once",
    )
    create.add_argument(
        "--if-not-exists", action="store_true", help="a topic that is there is no error"
    )
    create.add_argument(
        "--timeout",
        type=float,
        default=REQUEST_TIMEOUT_MS / 1_000,
        metavar="SECONDS",
        help="how long the controllers may take (default: %(default)g)",
    )
    list_ = verbs.add_parser("list", help="list topics")
    list_.add_argument("--internal", action="store_true", help="show internal topics too")
    describe = verbs.add_parser("describe", help="show a topic's partitions")
    describe.add_argument("names", nargs="+", metavar="NAME")
    delete = verbs.add_parser("delete", help="delete topics")
    delete.add_argument("names", nargs="+", metavar="NAME")
    changes = (*configure_changes(verbs), configure_reassign(verbs))
    for verb in (create, list_, describe, delete, *changes):
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
        timeout_ms=round(arguments.timeout * 1_000),
    )
    answer = await cluster.request(request, CreateTopicsResponse)
    rows, refusals = [], []
    for topic in answer.topics:
        if topic.error_code == ErrorCode.NONE:
            rows.append((topic.name, topic.num_partitions, topic.replication_factor))
        elif topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
            rows += map(_row, (await cluster.metadata([topic.name])).topics)
        else:
            refusals.append((topic.error_code, f"topic {topic.name!r}: {_refusal(topic)}"))
    show(arguments, TOPIC_COLUMNS, rows, refusals)
    return 0


async def list_topics(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """List every topic."""
    topics = (await cluster.metadata()).topics
    rows = [
        _row(topic)
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if arguments.internal or not topic.is_internal
    ]
    show(arguments, TOPIC_COLUMNS, rows)
    return 0


async def describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show each partition of each named topic."""
    answer = await cluster.metadata(arguments.names)
    topics = [topic for topic in answer.topics if topic.error_code == ErrorCode.NONE]
    if arguments.format == "json":
        print_json([_topic_json(topic) for topic in topics])
    else:
        if topics:
            say_block("\n\n".join(map(described, topics)))
    for topic in answer.topics:
        raise_for(topic.error_code, f"topic {topic.name!r}: {_meaning(topic)}")
    return 0


async def delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Delete every named topic, or say why not."""
    request = DeleteTopicsRequest(topic_names=arguments.names, timeout_ms=REQUEST_TIMEOUT_MS)
    answer = await cluster.request(request, DeleteTopicsResponse, version=DELETE_BY_NAME_VERSION)
    deleted = [(topic.name,) for topic in answer.responses if topic.error_code == ErrorCode.NONE]
    refusals = [
        (topic.error_code, f"topic {topic.name!r}: {_meaning(topic)}")
        for topic in answer.responses
        if topic.error_code != ErrorCode.NONE
    ]
    show(arguments, ("DELETED",), deleted, refusals)
    return 0


VERBS = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "delete": delete,
    **CHANGES,
    "reassign": reassign,
}


def _row(topic: MetadataResponseTopic) -> tuple[Any, ...]:
    partitions = topic.partitions
    return topic.name, len(partitions), max((len(p.replica_nodes) for p in partitions), default=0)


def described(topic: MetadataResponseTopic) -> str:
    """Return a topic and its partitions as a person reads them."""
    rows = [
        (
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            partition.replica_nodes,
            partition.isr_nodes,
            partition.offline_replicas or None,
        )
        for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
    ]
    columns = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE")
    return f"{topic.name}  id {uuid_to_text(topic.topic_id)}\n\n{table(columns, rows)}"


def _topic_json(topic: MetadataResponseTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": uuid_to_text(topic.topic_id),
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
                "offline": partition.offline_replicas,
            }
            for partition in sorted(topic.partitions, key=lambda p: p.partition_index)
        ],
    }


def _refusal(topic: CreatableTopicResult) -> str:
    """Return Kafka's words, and what to do where they do not tell."""
    said = (topic.error_message or row_of(topic.error_code).meaning).rstrip(".")
    if topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
        said += "; start more brokers, or ask for fewer replicas with --replication-factor"
    return said


def _meaning(topic: MetadataResponseTopic | DeletableTopicResult) -> str:
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "it does not exist; see 'ottla topic list'"
    message = topic.error_message if isinstance(topic, DeletableTopicResult) else None
    return message or row_of(topic.error_code).meaning


def _config(text: str) -> CreatableTopicConfig:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--config", f"is {text!r}; it must be KEY=VALUE")
    return CreatableTopicConfig(name=key.strip(), value=value.strip())
