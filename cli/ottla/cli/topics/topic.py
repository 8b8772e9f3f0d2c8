"""`ottla topic create|list|describe|delete`, and the verbs of other modules."""

import argparse
from collections.abc import Awaitable, Callable
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
from ottla.cli.outcomes import meaning_of, show
from ottla.cli.terminal import say_block
from ottla.cli.topics.topic_changes import CHANGES, configure_changes
from ottla.cli.topics.topic_storage import configure_storage, storage, topic_bytes
from ottla.client.admin import Admin, open_admin
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.storage.meta_properties import uuid_to_text
from ottla.wire.messages.metadata_response import MetadataResponseTopic

TIMEOUT_S = 30.0
TOPIC_COLUMNS = ("NAME", "PARTITIONS", "REPLICAS")
LIST_COLUMNS = (*TOPIC_COLUMNS, "BYTES")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla topic'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="create topics")
    create.add_argument("names", nargs="+", metavar="NAME", help="name of a topic to create")
    create.add_argument(
        "-p",
        "--partitions",
        type=int,
        default=-1,
        metavar="COUNT",
        help="number of partitions (default: the cluster's num.partitions)",
    )
    create.add_argument(
        "-r",
        "--replication-factor",
        "--replicas",
        type=int,
        default=-1,
        metavar="COUNT",
        help="number of replicas of a partition (default: the cluster's "
        "default.replication.factor)",
    )
    create.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the topic; may be repeated",
    )
    create.add_argument(
        "--if-not-exists", action="store_true", help="succeed where the topic exists already"
    )
    create.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="time for the controllers to create them, in seconds (default: %(default)g)",
    )
    list_ = verbs.add_parser("list", help="list topics, with the bytes of all their replicas")
    list_.add_argument("--internal", action="store_true", help="list internal topics too")
    describe = verbs.add_parser("describe", help="show a topic's partitions")
    describe.add_argument("names", nargs="+", metavar="NAME", help="name of a topic")
    delete = verbs.add_parser("delete", help="delete topics")
    delete.add_argument("names", nargs="+", metavar="NAME", help="name of a topic")
    changes = (*configure_changes(verbs), configure_reassign(verbs), configure_storage(verbs))
    for verb in (create, list_, describe, delete, *changes):
        add_cluster_arguments(verb)
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        timeout_s: float = getattr(arguments, "timeout", TIMEOUT_S)
        async with open_admin(bootstrap_of(arguments), timeout_s=timeout_s) as admin:
            return await VERBS[arguments.verb](admin, arguments)

    return run_async(body)


async def create(admin: Admin, arguments: argparse.Namespace) -> int:
    """Create every named topic, or say why not."""
    configs = [_config(text) for text in arguments.config]
    outcomes = await admin.create_topics(
        arguments.names,
        partition_count=arguments.partitions,
        replication_factor=arguments.replication_factor,
        configs=configs,
    )
    rows: list[tuple[Any, ...]] = []
    refusals = []
    for name, outcome in outcomes.items():
        if not isinstance(outcome, RefusedError):
            rows.append((name, *outcome))
        elif outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
            rows += map(_row, (await admin.cluster.metadata([name])).topics)
        else:
            refusals.append(RefusedError(outcome.code, f"topic {name!r}: {_refusal(outcome)}"))
    show(arguments, TOPIC_COLUMNS, rows, refusals)
    return 0


async def list_topics(admin: Admin, arguments: argparse.Namespace) -> int:
    """List every topic, with what all its replicas take of disks."""
    topics = (await admin.cluster.metadata()).topics
    held = await topic_bytes(admin)
    rows = [
        (*_row(topic), held.get(topic.name or "", 0))
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if arguments.internal or not topic.is_internal
    ]
    show(arguments, LIST_COLUMNS, rows)
    return 0


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show each partition of each named topic."""
    answer = await admin.cluster.metadata(arguments.names)
    topics = [topic for topic in answer.topics if topic.error_code == ErrorCode.NONE]
    if arguments.format == "json":
        print_json([_topic_json(topic) for topic in topics])
    else:
        if topics:
            say_block("\n\n".join(map(described, topics)))
    for topic in answer.topics:
        raise_for(topic.error_code, f"topic {topic.name!r}: {meaning_of(topic.error_code)}")
    return 0


async def delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """Delete every named topic, or say why not."""
    outcomes = await admin.delete_topics(arguments.names)
    deleted = [(name,) for name, refusal in outcomes.items() if refusal is None]
    refusals = [
        RefusedError(refusal.code, f"topic {name!r}: {meaning_of(refusal.code, refusal.message)}")
        for name, refusal in outcomes.items()
        if refusal is not None
    ]
    show(arguments, ("DELETED",), deleted, refusals)
    return 0


VERBS: dict[str, Callable[[Admin, argparse.Namespace], Awaitable[int]]] = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "delete": delete,
    **CHANGES,
    "reassign": reassign,
    "storage": storage,
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


def _refusal(refusal: RefusedError) -> str:
    """Return Kafka's words, and what to do where they do not tell."""
    if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return "it already exists"  # Kafka's sentence repeats the name
    said = refusal.message.rstrip(".")
    if refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR:
        said += "; start more brokers, or ask for fewer replicas with --replication-factor"
    return said


def _config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--config", f"is {text!r}; it must be KEY=VALUE")
    return key.strip(), value.strip()
