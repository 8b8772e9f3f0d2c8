"""`ottla topic`: declares its verbs and their options.

The module of a verb is imported only when that verb runs, because importing all of them takes
longer than listing topics.
"""

import argparse

from ottla.cli.cluster.moves.reassign_arguments import REASSIGN
from ottla.cli.common import CONNECTION, FORMAT, bootstrap_of, run_async
from ottla.cli.confirmation import CONFIRMATION, YES
from ottla.cli.imports import importing
from ottla.cli.options import one_of, option
from ottla.cli.topics.change_arguments import CHANGE_OPTIONS, DRY_RUN
from ottla.cli.verbs import admin_verb, run_admin, verb

TIMEOUT_S = 30.0
NAMES = option("names NAME ...", "name of a topic")
NAME = option("name NAME", "name of the topic")
PARTITION = option(
    "-p --partition NUMBER ...", "number of a partition; may be repeated (default: all)", type=int
)
MODULE = "ottla.cli.topics"


def create_topics(arguments: argparse.Namespace) -> int:
    """`ottla topic create`: create topics. The controllers must create them within --timeout.
    Returns the exit code."""
    return run_admin(f"{MODULE}.topic_verbs:create", arguments, timeout_s=arguments.timeout)


def list_topics(arguments: argparse.Namespace) -> int:
    """`ottla topic list`: list topics, by the fast path `quick_list` if the command has no login.
    Returns the exit code."""
    from ottla.cli.topics.quick_list import list_at_once

    if list_at_once(arguments):
        return 0
    with importing():
        from ottla.cli.topics import topic_list
        from ottla.client.admin_parts.admin_brokers import BrokerCalls
        from ottla.client.admin_parts.admin_calls import open_calls

    async def body() -> int:
        bootstrap = bootstrap_of(arguments)
        async with open_calls(BrokerCalls, bootstrap, timeout_s=TIMEOUT_S) as calls:
            return await topic_list.list_topics(calls, arguments)

    return run_async(body)


VERBS = (
    verb(
        "create",
        "create topics",
        create_topics,
        option("names NAME ...", "name of a topic to create"),
        option(
            "-p --partitions COUNT",
            "number of partitions (default: the cluster's num.partitions)",
            type=int,
            default=-1,
        ),
        option(
            "-r --replication-factor --replicas COUNT",
            "number of replicas of a partition (default: the cluster's default.replication.factor)",
            type=int,
            default=-1,
        ),
        option("-c --config KEY=VALUE ...", "setting of the topic; may be repeated"),
        option("--if-not-exists", "succeed if the topic exists already"),
        option(
            "--timeout SECONDS",
            "time for the controllers to create them, in seconds (default: %(default)g)",
            type=float,
            default=TIMEOUT_S,
        ),
        *CONNECTION,
        FORMAT,
    ),
    verb(
        "list",
        "list topics, with the bytes of all their replicas",
        list_topics,
        option("--internal", "list internal topics too"),
        *CONNECTION,
        FORMAT,
    ),
    admin_verb("describe", "show a topic's partitions", f"{MODULE}.topic_verbs:describe", NAMES),
    admin_verb("delete", "delete topics", f"{MODULE}.topic_verbs:delete", NAMES, YES),
    admin_verb(
        "alter",
        "change settings of topics",
        f"{MODULE}.topic_changes:alter_topics",
        NAMES,
        option(
            "-c --config KEY=VALUE ...",
            "setting; KEY+=VALUE and KEY-=VALUE change a list; may be repeated",
        ),
        *CHANGE_OPTIONS,
    ),
    admin_verb(
        "add-partitions",
        "add partitions to topics",
        f"{MODULE}.topic_changes:add_partitions",
        NAMES,
        one_of(
            option("--by COUNT", "number of partitions to add", type=int),
            option("--to COUNT", "number of partitions afterwards", type=int),
            required=True,
        ),
        DRY_RUN,
    ),
    admin_verb(
        "trim",
        "delete the oldest records",
        f"{MODULE}.topic_changes:trim",
        NAME,
        PARTITION,
        one_of(
            option("--before OFFSET", "offset of the first record to keep", type=int),
            option(
                "--before-time TIME",
                "time of the first record to keep: 2026-07-31T12:00, or a duration before now "
                "such as 36h",
            ),
            option("--all", "delete all committed records"),
            required=True,
        ),
        CONFIRMATION,
    ),
    admin_verb(
        "elect",
        "give leadership to each partition's first replica",
        f"{MODULE}.topic_changes:elect",
        option("names NAME", "names of topics (default: all)", nargs="*"),
        PARTITION,
        option(
            "--unclean",
            "elect the replica that lacks the fewest records if there is no leader, and show "
            "what each candidate lacks; acknowledged records may be lost",
        ),
        CONFIRMATION,
        description="Only an unclean election is confirmed.",
    ),
    REASSIGN,
    admin_verb(
        "storage", "show the bytes of a topic's replicas", f"{MODULE}.topic_storage:storage", NAME
    ),
)
