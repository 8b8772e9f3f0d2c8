"""`ottla topic storage`: shows the size of each replica of a topic in bytes, and its log
directory."""

import argparse
from typing import Any

from ottla.cli.common import counted
from ottla.cli.outcomes import meaning_of, show
from ottla.cli.tables import ByteCount
from ottla.cli.terminal import note, say
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.log_dirs_driver import ask
from ottla.model.amounts import amount
from ottla.model.ids import NodeId, TopicPartition

COLUMNS = ("PARTITION", "BROKER", "ROLE", "DIRECTORY", "BYTES", "LAG", "FUTURE")


async def storage(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic storage`: show each replica of a topic with its log directory and size in bytes.
    Both are empty for a replica that no broker reported. Returns the exit code."""
    (topic,) = (await admin.cluster.metadata([arguments.name])).topics
    raise_for(topic.error_code, f"topic {topic.name!r}: {meaning_of(topic.error_code)}")
    replicas = {
        (partition.partition_index, broker): "leader" if broker == partition.leader_id else "-"
        for partition in topic.partitions
        for broker in partition.replica_nodes
    }
    holders = sorted({NodeId(broker) for _, broker in replicas})
    partitions = sorted({TopicPartition(arguments.name, index) for index, _ in replicas})
    rows: list[tuple[Any, ...]] = []
    missing = dict(replicas)
    for one in await ask(admin, holders, partitions):
        if one.failure:
            note(f"broker {one.broker}: {one.failure}")
        for directory in one.directories:
            for partition, replica in directory.replicas.items():
                key = (partition.partition, int(one.broker))
                missing.pop(key, None)
                size, *rest = replica
                role = replicas.get(key, "-")
                rows.append((*key, role, directory.path, ByteCount(size), *rest))
    rows += [(*key, role, None, None, None, None) for key, role in missing.items()]
    rows.sort(key=lambda row: (row[:2], bool(row[-1])))
    show(arguments, COLUMNS, rows)
    if arguments.format == "table":
        total = amount(sum(row[4] or 0 for row in rows))
        say(f"{total} in {counted(len(rows) - len(missing), 'replica')}")
    return 0
