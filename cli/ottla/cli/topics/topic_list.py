"""`ottla topic list`: lists topics, with the bytes of all their replicas.

Users and shell completion run this command most often, so this module imports only the admin calls
that it needs. In simple cases `quick_list` prints the list, and this module is not imported.
"""

import argparse
from collections import Counter

from ottla.cli.terminal import note
from ottla.cli.topics.topic_rows import show_list
from ottla.client.admin_parts.admin_brokers import BrokerCalls
from ottla.insight.facts.log_dirs_driver import ask_bytes


async def list_topics(admin: BrokerCalls, arguments: argparse.Namespace) -> int:
    """`ottla topic list`: list every topic, with the bytes of all its replicas. Returns the exit
    code."""
    topics = (await admin.cluster.metadata()).topics
    show_list(arguments, topics, await topic_bytes(admin))
    return 0


async def topic_bytes(admin: BrokerCalls) -> Counter[str]:
    """Return the number of bytes in all replicas of each topic. Prints a note for each broker that
    does not respond.

    A replica that is being moved between directories is counted twice until the move ends.
    """
    found: Counter[str] = Counter()
    for one in await ask_bytes(admin):
        if one.failure:
            note(f"BYTES lack those of broker {one.broker}: {one.failure}")
        for directory in one.directories:
            for partition, replica in directory.replicas.items():
                found[partition.topic] += replica.size_bytes
    return found
