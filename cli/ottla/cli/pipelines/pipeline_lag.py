"""`ottla pipeline lag`: how far every streaming query is behind, by the groups they commit to.

A query of Spark reads by its checkpoint alone; what it has read it commits to the group
spark-<its name> as well, which is looked at here (`ottla group lag` tells one by partition).
"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    add_isolation_argument,
    bootstrap_of,
    print_json,
    print_table,
    run_async,
)
from ottla.cli.terminal import clear_screen
from ottla.pipeline.run.progress import SHADOW_PREFIX
from ottla.wire.offset_timestamps import LATEST

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.model.ids import TopicPartition

WATCH_S = 2.0
COLUMNS = ("QUERY", "TOPICS", "PARTITIONS", "LAG")


class QueryLag(NamedTuple):
    """One query, as far as its group tells."""

    query: str
    topic_count: int
    partition_count: int
    lag: int | None
    """Records; None where a topic is gone."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    add_cluster_arguments(parser)
    add_isolation_argument(parser)
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show every query once, or until interrupted."""
    import trio

    from ottla.client.admin import open_admin

    is_json = arguments.format == "json"
    level = arguments.isolation_level

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            while arguments.watch:
                found = await queries(admin, isolation_level=level)
                clear_screen()
                show(found, is_json=is_json)
                await trio.sleep(WATCH_S)
            show(await queries(admin, isolation_level=level), is_json=is_json)
        return 0

    return run_async(body)


async def queries(admin: "Admin", *, isolation_level: str = "read_uncommitted") -> list[QueryLag]:
    """Ask the cluster for every query's group and how far it is behind."""
    groups = sorted(group.group_id for group in await admin.list_groups())
    return [
        await query_lag(admin, group, isolation_level=isolation_level)
        for group in groups
        if group.startswith(SHADOW_PREFIX)
    ]


async def query_lag(
    admin: "Admin", group: str, *, isolation_level: str = "read_uncommitted"
) -> QueryLag:
    """Return how far the query of a group is behind."""
    from ottla.model.errors import RefusedError

    committed = {at: one.offset for at, one in (await admin.group_offsets(group)).items()}
    try:
        told = await admin.list_offsets(
            dict.fromkeys(committed, LATEST), isolation_level=isolation_level
        )
    except RefusedError:
        return summed(group, committed, None)
    return summed(group, committed, {at: one.offset for at, one in told.items()})


def summed(
    group: str,
    committed: "Mapping[TopicPartition, int]",
    ends: "Mapping[TopicPartition, int] | None",
) -> QueryLag:
    """Return what a group's partitions come to; `ends` is None where they cannot be told."""
    return QueryLag(
        query=group.removeprefix(SHADOW_PREFIX),
        topic_count=len({at.topic for at in committed}),
        partition_count=len(committed),
        lag=None
        if ends is None
        else sum(max(0, ends[at] - offset) for at, offset in committed.items()),
    )


def show(found: list[QueryLag], *, is_json: bool) -> None:
    """Print the queries."""
    if is_json:
        print_json([one._asdict() for one in found])
    else:
        print_table(COLUMNS, found)
