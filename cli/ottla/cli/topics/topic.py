"""`ottla topic`: the options of its verbs, and where each verb is.

A verb's module is imported when that verb runs: what all of them need takes longer to import than
a list of topics takes to show.
"""

import argparse
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

from ottla.cli.cluster.reassign_arguments import configure_reassign
from ottla.cli.common import add_cluster_arguments, add_format_argument, bootstrap_of, run_async
from ottla.cli.imports import importing
from ottla.cli.topics.change_arguments import configure_changes, configure_storage

TIMEOUT_S = 30.0

VERBS = {
    "create": ("ottla.cli.topics.topic_verbs", "create"),
    "list": ("ottla.cli.topics.topic_list", "list_topics"),
    "describe": ("ottla.cli.topics.topic_verbs", "describe"),
    "delete": ("ottla.cli.topics.topic_verbs", "delete"),
    "alter": ("ottla.cli.topics.topic_changes", "alter_topics"),
    "add-partitions": ("ottla.cli.topics.topic_changes", "add_partitions"),
    "trim": ("ottla.cli.topics.topic_changes", "trim"),
    "elect": ("ottla.cli.topics.topic_changes", "elect"),
    "reassign": ("ottla.cli.cluster.reassign", "reassign"),
    "storage": ("ottla.cli.topics.topic_storage", "storage"),
}
"""Module and function of each verb."""


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
    if arguments.verb == "list":
        from ottla.cli.topics.quick_list import list_at_once

        if list_at_once(arguments):
            return 0
    module, function = VERBS[arguments.verb]
    with importing():
        verb = getattr(import_module(module), function)

    async def body() -> int:
        timeout_s: float = getattr(arguments, "timeout", TIMEOUT_S)
        async with _admin_for(arguments.verb, bootstrap_of(arguments), timeout_s) as admin:
            code: int = await verb(admin, arguments)
            return code

    return run_async(body)


def _admin_for(
    verb: str, bootstrap: tuple[tuple[str, int], ...], timeout_s: float
) -> AbstractAsyncContextManager[Any]:
    """Open the calls that a verb makes: a list needs few."""
    if verb == "list":
        from ottla.client.admin_parts.admin_brokers import BrokerCalls
        from ottla.client.admin_parts.admin_calls import open_calls

        return open_calls(BrokerCalls, bootstrap, timeout_s=timeout_s)
    from ottla.client.admin import open_admin

    return open_admin(bootstrap, timeout_s=timeout_s)
