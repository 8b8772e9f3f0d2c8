"""`ottla topic create|describe|delete`: creates, shows and deletes topics."""

import argparse
from typing import Any

from ottla.cli.common import print_json
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.outcomes import meaning_of, show
from ottla.cli.tables import print_table
from ottla.cli.terminal import say
from ottla.cli.topics.topic_rows import TOPIC_COLUMNS, row_of_topic
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.wire.messages.metadata_response import MetadataResponseTopic


async def create(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic create`: create every named topic. Each refusal is printed. Returns the exit
    code."""
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
            rows += map(row_of_topic, (await admin.cluster.metadata([name])).topics)
        else:
            refusals.append(RefusedError(outcome.code, f"topic {name!r}: {_refusal(outcome)}"))
    show(arguments, TOPIC_COLUMNS, rows, refusals)
    return 0


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic describe`: show each partition of each named topic. Returns the exit code."""
    answer = await admin.cluster.metadata(arguments.names)
    topics = [topic for topic in answer.topics if topic.error_code == ErrorCode.NONE]
    if arguments.format == "json":
        print_json([_topic_json(topic) for topic in topics])
    else:
        for number, topic in enumerate(topics):
            if number:
                say()
            _say_topic(topic)
    for topic in answer.topics:
        raise_for(topic.error_code, f"topic {topic.name!r}: {meaning_of(topic.error_code)}")
    return 0


async def delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic delete`: delete every named topic if the user confirms. Each refusal is printed.
    Returns the exit code."""
    names = ", ".join(map(repr, arguments.names))
    if not await confirm_in_loop(arguments, f"delete {names} with all records?"):
        return 0
    outcomes = await admin.delete_topics(arguments.names)
    deleted = [(name,) for name, refusal in outcomes.items() if refusal is None]
    refusals = [
        RefusedError(refusal.code, f"topic {name!r}: {meaning_of(refusal.code, refusal.message)}")
        for name, refusal in outcomes.items()
        if refusal is not None
    ]
    show(arguments, ("DELETED",), deleted, refusals)
    return 0


def _say_topic(topic: MetadataResponseTopic) -> None:
    """Print the description of a topic and its partitions."""
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
    say(f"{topic.name}  id {uuid_to_text(topic.topic_id)}")
    say()
    print_table(columns, rows)


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
    """Return the error message of a refused topic, with a remedy if its replication factor is
    invalid."""
    if refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return "it already exists"  # Kafka's message repeats the name
    said = refusal.message.rstrip(".")
    if refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR:
        said += "; start more brokers, or ask for fewer replicas with --replication-factor"
    return said


def _config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--config", f"is {text!r}; it must be KEY=VALUE")
    return key.strip(), value.strip()
