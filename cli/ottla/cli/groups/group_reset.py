"""`ottla group reset`: shows the new offsets of a group, and commits them if the user confirms."""

import argparse
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from ottla.cli.common import print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.groups.reset_plans import (
    format_plan,
    parse_places,
    parse_plan,
    parse_reset_duration,
)
from ottla.cli.options import Declared, one_of, option
from ottla.cli.tables import print_table
from ottla.cli.terminal import note, reason_of, say_block
from ottla.client.admin import Admin
from ottla.insight.changes.reset_plan_driver import ResetRow, ResetTo, plan_given, plan_reset
from ottla.insight.facts.group_view import committed_offsets
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.points_in_time import parse_time

COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "DIFFERENCE")


RESET_OPTIONS: tuple[Declared, ...] = (
    option(
        "--topic TOPIC[:PARTITION,…] ...",
        "topic, or single partitions of it; may be repeated (default: all with committed offsets)",
    ),
    one_of(
        option("--to-earliest", "first available record"),
        option("--to-latest", "end of each partition"),
        option("--to-offset OFFSET", "offset", type=int),
        option(
            "--to-datetime TIME",
            "time of the first record to read, such as 2026-01-31T12:00 (UTC) or with +01:00",
        ),
        option(
            "--by-duration DURATION",
            "first record of the last DURATION, such as PT5M, P1DT2H30M or 36h",
        ),
        option("--shift-by COUNT", "number of records forward, or -N back", type=int),
        option("--to-current", "committed offset; the end where there is none"),
        option(
            "--from-file FILE",
            "offsets of a CSV file with lines TOPIC,PARTITION,OFFSET, as --export and "
            "kafka-consumer-groups write them",
        ),
        required=True,
    ),
    option("--export", "print the new offsets as CSV for --from-file, in place of the table"),
    CONFIRMATION,
)


class ResetTarget(NamedTuple):
    """Kind of offsets that a reset changes: committed offsets of a consumer group, or start offsets
    of a share group."""

    noun: str
    command: str
    read: Callable[[Admin, str], Awaitable[dict[TopicPartition, int]]]
    write: Callable[[Admin, str, dict[TopicPartition, int]], Awaitable[None]]


async def reset(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group reset`: show the present and the new committed offsets of a group. Commit the
    new offsets if the user confirms. Returns the exit code."""
    return await reset_offsets(
        admin, arguments, ResetTarget("group", "group", committed_offsets, _commit)
    )


async def reset_offsets(admin: Admin, arguments: argparse.Namespace, target: ResetTarget) -> int:
    """Show the present and the new offsets of a consumer group or share group. Write the new
    offsets if the user confirms. Returns the exit code."""
    group = arguments.group
    before = await target.read(admin, group)
    given = _from_file(arguments, group)
    partitions = sorted(before if given is None else given)
    if arguments.topic:
        partitions = await partitions_named(admin, arguments.topic)
    if not partitions:
        raise ConfigError("--topic", f"is not given, and {target.noun} {group!r} has no offsets")
    plan = await _planned(admin, arguments, before, partitions, given)
    for one in plan:
        _note_limit(one, target.command)
    after = {one.at: one.after for one in plan}
    if arguments.yes:
        await target.write(admin, group, after)
    rows = [
        (at.topic, at.partition, before.get(at), to, None if at not in before else to - before[at])
        for at, to in after.items()
    ]
    if arguments.export:
        say_block(format_plan(after))
    elif arguments.format == "json":
        print_json([dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, rows)
    if arguments.export and not arguments.yes:
        return 0  # the file is the plan of a later reset
    question = f"set these offsets of {target.noun} {group!r}?"
    if not arguments.yes and await confirm_in_loop(arguments, question):
        await target.write(admin, group, after)
    return 0


def _from_file(arguments: argparse.Namespace, group: str) -> dict[TopicPartition, int] | None:
    """Return the group's new offsets from the file of the option --from-file, or None if the option
    is absent."""
    if arguments.from_file is None:
        return None
    if arguments.topic:
        raise ConfigError("--topic", "excludes --from-file, whose lines name the partitions")
    try:
        text = Path(arguments.from_file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--from-file", f"cannot be read: {reason_of(error)}") from None
    return parse_plan(text, group)


async def partitions_named(admin: Admin, texts: list[str]) -> list[TopicPartition]:
    """Return the partitions that --topic names. Raises RefusedError if a topic or partition does
    not exist."""
    found: dict[TopicPartition, None] = {}
    for topic, indexes in (parse_places("--topic", text) for text in texts):
        there = await admin.cluster.partitions_of(topic)
        for index in there if indexes is None else indexes:
            at = TopicPartition(topic, index)
            if index not in there:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise RefusedError(code, f"there is no partition {at}")
            found[at] = None
    return list(found)


async def _planned(
    admin: Admin,
    arguments: argparse.Namespace,
    before: dict[TopicPartition, int],
    partitions: list[TopicPartition],
    given: dict[TopicPartition, int] | None,
) -> list[ResetRow]:
    """Return the new offset of each partition, as the options of the reset require. Each offset is
    within the partition's records."""
    if given is not None:
        wanted = {at: given[at] for at in partitions if at in given}
        return await plan_given(admin, before, wanted)
    since_ms = reset_time_ms(arguments)
    if since_ms is not None:
        return await plan_reset(admin, before, partitions, ResetTo.TIME, since_ms)
    if arguments.shift_by is not None:
        return await plan_reset(admin, before, partitions, ResetTo.SHIFT, arguments.shift_by)
    if arguments.to_offset is not None:
        return await plan_reset(admin, before, partitions, ResetTo.OFFSET, arguments.to_offset)
    to = ResetTo.CURRENT
    if arguments.to_earliest or arguments.to_latest:
        to = ResetTo.EARLIEST if arguments.to_earliest else ResetTo.LATEST
    return await plan_reset(admin, before, partitions, to)


def _note_limit(row: ResetRow, command: str) -> None:
    if row.after != row.requested:
        place = "after the end" if row.requested > row.after else "before the first"
        note(
            f"ottla {command}: offset {row.requested} of {row.at} is {place} offset {row.after}, "
            "which is taken instead"
        )


def reset_time_ms(arguments: argparse.Namespace) -> int | None:
    """Return the time in ms since 1970 from which the group reads records again, or None if no
    option specifies a time."""
    if arguments.to_datetime is not None:
        return parse_time("--to-datetime", arguments.to_datetime, _wall_ms())
    if arguments.by_duration is not None:
        back_ms = parse_reset_duration("--by-duration", arguments.by_duration)
        return max(0, _wall_ms() - back_ms)
    return None


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _commit(admin: Admin, group: str, offsets: dict[TopicPartition, int]) -> None:
    for at, refusal in (await admin.try_alter_group_offsets(group, offsets)).items():
        said = refusal.message
        if refusal.code is ErrorCode.UNKNOWN_MEMBER_ID:
            said = "the group has members; stop them first"
        raise RefusedError(refusal.code, f"{at}: {said}")
