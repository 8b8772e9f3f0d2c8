"""Prints topics that the caller has fetched, as a table or as JSON: name, number of partitions,
number of replicas, and bytes."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount
from ottla.wire.messages.metadata_response import MetadataResponseTopic

TOPIC_COLUMNS = ("NAME", "PARTITIONS", "REPLICAS")
LIST_COLUMNS = (*TOPIC_COLUMNS, "BYTES")


def row_of_topic(topic: MetadataResponseTopic) -> tuple[Any, ...]:
    """Return the table row of a topic: its name, and its numbers of partitions and replicas."""
    partitions = topic.partitions
    return topic.name, len(partitions), max((len(p.replica_nodes) for p in partitions), default=0)


def show_list(
    arguments: argparse.Namespace,
    topics: Iterable[MetadataResponseTopic],
    held: Mapping[str, int],
) -> None:
    """Print a table of topics sorted by name. `held` has the number of bytes in all replicas, by
    topic."""
    rows = [
        (*row_of_topic(topic), ByteCount(held.get(topic.name or "", 0)))
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if arguments.internal or not topic.is_internal
    ]
    show(arguments, LIST_COLUMNS, rows)
