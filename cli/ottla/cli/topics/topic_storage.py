"""`ottla topic storage`: how many bytes each replica of a topic takes, and in which directory.

And how many all replicas of each topic take, for `ottla topic list`.
"""

import argparse
from collections import Counter
from typing import Any

from ottla.cli.cluster.log_dirs import ask, ask_bytes
from ottla.cli.common import counted
from ottla.cli.outcomes import meaning_of, show
from ottla.cli.terminal import note, say
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.model.ids import NodeId, TopicPartition

COLUMNS = ("PARTITION", "BROKER", "ROLE", "DIRECTORY", "BYTES", "LAG", "FUTURE")


def configure_storage(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    """Declare the verb."""
    parser = verbs.add_parser("storage", help="show the bytes of a topic's replicas")
    parser.add_argument("name", metavar="NAME", help="name of the topic")
    return parser


async def storage(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show each replica with its directory; one that is in none is shown without."""
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
                rows.append((*key, replicas.get(key, "-"), directory.path, *replica))
    rows += [(*key, role, None, None, None, None) for key, role in missing.items()]
    rows.sort(key=lambda row: (row[:2], bool(row[-1])))
    show(arguments, COLUMNS, rows)
    if arguments.format == "table":
        total_bytes = sum(row[4] or 0 for row in rows)
        say(f"{total_bytes:,} bytes in {counted(len(rows) - len(missing), 'replica')}")
    return 0


async def topic_bytes(admin: Admin) -> Counter[str]:
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
