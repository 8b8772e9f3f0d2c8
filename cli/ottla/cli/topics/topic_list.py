"""`ottla topic list`: topics, with the bytes of all their replicas.

People and completion ask for it most, so that it imports only the calls that it makes.
"""

import argparse
from collections import Counter
from typing import Any

from ottla.cli.cluster.log_dirs import ask_bytes
from ottla.cli.outcomes import show
from ottla.cli.terminal import note
from ottla.client.admin_parts.admin_brokers import BrokerCalls
from ottla.wire.messages.metadata_response import MetadataResponseTopic

TOPIC_COLUMNS = ("NAME", "PARTITIONS", "REPLICAS")
LIST_COLUMNS = (*TOPIC_COLUMNS, "BYTES")


async def list_topics(admin: BrokerCalls, arguments: argparse.Namespace) -> int:
    """List every topic, with what all its replicas take of disks."""
    topics = (await admin.cluster.metadata()).topics
    held = await topic_bytes(admin)
    rows = [
        (*row_of_topic(topic), held.get(topic.name or "", 0))
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if arguments.internal or not topic.is_internal
    ]
    show(arguments, LIST_COLUMNS, rows)
    return 0


async def topic_bytes(admin: BrokerCalls) -> Counter[str]:
    """Return the bytes of all replicas by topic; a note names each broker that does not answer.

    A replica that moves between directories is there twice until it has moved.
    """
    found: Counter[str] = Counter()
    for one in await ask_bytes(admin):
        if one.failure:
            note(f"BYTES lack those of broker {one.broker}: {one.failure}")
        for directory in one.directories:
            for partition, replica in directory.replicas.items():
                found[partition.topic] += replica.size_bytes
    return found


def row_of_topic(topic: MetadataResponseTopic) -> tuple[Any, ...]:
    """Return a topic's name and its counts of partitions and replicas."""
    partitions = topic.partitions
    return topic.name, len(partitions), max((len(p.replica_nodes) for p in partitions), default=0)
