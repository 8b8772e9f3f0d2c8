"""`ottla pipeline lag`: shows the lag of every streaming query, computed from the committed offsets
of the query's group.

A query commits the offsets that it has read to the group spark-NAME, where NAME is the query's
name. After a restart, it resumes from its Spark checkpoint, not from these offsets. `ottla group
lag` shows the partitions of one group.
"""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.common import CONNECTION, FORMAT, ISOLATION, bootstrap_of, print_json, run_async
from ottla.cli.options import Declared, option
from ottla.cli.tables import print_table
from ottla.cli.terminal import clear_screen
from ottla.pipeline.run.progress import SHADOW_PREFIX
from ottla.wire.offset_timestamps import LATEST

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.model.ids import TopicPartition

WATCH_S = 2.0
COLUMNS = ("QUERY", "TOPICS", "PARTITIONS", "LAG")


class QueryLag(NamedTuple):
    """Lag of one streaming query, computed from the committed offsets of its group."""

    query: str
    topic_count: int
    partition_count: int
    lag: int | None
    """Number of records that the streaming query has not read yet. None if one of its topics no
    longer exists."""


OPTIONS: tuple[Declared, ...] = (
    option("--watch", "refresh until Ctrl-C"),
    *CONNECTION,
    ISOLATION,
    FORMAT,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla pipeline lag`: show the lag of every streaming query, once or until interrupted.
    Returns the exit code."""
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
    """Return the lag of every streaming query, from the committed offsets of its group."""
    groups = sorted(group.group_id for group in await admin.list_groups())
    return [
        await query_lag(admin, group, isolation_level=isolation_level)
        for group in groups
        if group.startswith(SHADOW_PREFIX)
    ]


async def query_lag(
    admin: "Admin", group: str, *, isolation_level: str = "read_uncommitted"
) -> QueryLag:
    """Return the lag, in records, of the streaming query that commits to a group."""
    from ottla.model.errors import RefusedError

    committed = {at: one.offset for at, one in (await admin.group_offsets(group)).items()}
    try:
        listed = await admin.list_offsets(
            dict.fromkeys(committed, LATEST), isolation_level=isolation_level
        )
    except RefusedError:
        return summed(group, committed, None)
    return summed(group, committed, {at: one.offset for at, one in listed.items()})


def summed(
    group: str,
    committed: "Mapping[TopicPartition, int]",
    ends: "Mapping[TopicPartition, int] | None",
) -> QueryLag:
    """Return the lag of a streaming query, summed over its group's partitions. `ends` is None if
    the end offsets are unknown."""
    return QueryLag(
        query=group.removeprefix(SHADOW_PREFIX),
        topic_count=len({at.topic for at in committed}),
        partition_count=len(committed),
        lag=None
        if ends is None
        else sum(max(0, ends[at] - offset) for at, offset in committed.items()),
    )


def show(found: list[QueryLag], *, is_json: bool) -> None:
    """Print the lags of streaming queries as a table, or as JSON if `is_json`."""
    if is_json:
        print_json([one._asdict() for one in found])
    else:
        print_table(COLUMNS, found)
