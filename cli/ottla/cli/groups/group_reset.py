"""`ottla group reset`: shows the new offsets of a group, and commits them once confirmed."""

import argparse
from datetime import datetime

from ottla.cli.common import print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.groups.group_view import committed_offsets
from ottla.cli.options import Declared, one_of, option
from ottla.cli.tables import print_table
from ottla.cli.topics.offsets import offsets_at
from ottla.client.admin import Admin
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST, LATEST

NO_OFFSET = -1
COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "DIFFERENCE")


RESET_OPTIONS: tuple[Declared, ...] = (
    option(
        "--topic TOPIC ...", "topic; may be repeated (default: all topics with committed offsets)"
    ),
    one_of(
        option("--to-earliest", "first available record"),
        option("--to-latest", "end of each partition"),
        option("--to-offset OFFSET", "offset", type=int),
        option(
            "--to-datetime TIME",
            "time of the first record to read, such as 2026-01-31T12:00 (UTC) or with +01:00",
        ),
        option("--shift-by COUNT", "number of records forward, or -N back", type=int),
        required=True,
    ),
    CONFIRMATION,
)


async def reset(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show the present and the new committed offsets of a group. Commit the new offsets once
    confirmed."""
    group = arguments.group
    before = await committed_offsets(admin, group)
    partitions = sorted(before)
    if arguments.topic:
        partitions = [
            TopicPartition(topic, index)
            for topic in arguments.topic
            for index in await admin.cluster.partitions_of(topic)
        ]
    if not partitions:
        raise ConfigError("--topic", f"is not given, and group {group!r} has committed nothing")
    after = await _wanted(admin, arguments, before, partitions)
    if arguments.yes:
        await _commit(admin, group, after)
    rows = [
        (at.topic, at.partition, before.get(at), to, None if at not in before else to - before[at])
        for at, to in after.items()
    ]
    if arguments.format == "json":
        print_json([dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, rows)
    question = f"commit these offsets of group {group!r}?"
    if not arguments.yes and await confirm_in_loop(arguments, question):
        await _commit(admin, group, after)
    return 0


async def _wanted(
    admin: Admin,
    arguments: argparse.Namespace,
    before: dict[TopicPartition, int],
    partitions: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, limited to the range from its first offset to its
    end offset."""
    starts = await offsets_at(admin.cluster, partitions, EARLIEST)
    ends = await offsets_at(admin.cluster, partitions, LATEST)
    if arguments.to_earliest:
        return starts
    if arguments.to_latest:
        return ends
    if arguments.to_datetime is not None:
        wanted = await offsets_at(admin.cluster, partitions, _milliseconds(arguments.to_datetime))
        # No record is as late as the given time, so the group continues at the end.
        return {at: ends[at] if to == NO_OFFSET else to for at, to in wanted.items()}
    if arguments.shift_by is not None:
        wanted = {at: before.get(at, starts[at]) + arguments.shift_by for at in partitions}
    else:
        wanted = dict.fromkeys(partitions, arguments.to_offset)
    return {at: min(max(to, starts[at]), ends[at]) for at, to in wanted.items()}


def _milliseconds(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ConfigError("--to-datetime", f"is {text!r}; it must be as 2026-01-31T12:00") from None


async def _commit(admin: Admin, group: str, offsets: dict[TopicPartition, int]) -> None:
    for at, refusal in (await admin.try_alter_group_offsets(group, offsets)).items():
        said = refusal.message
        if refusal.code is ErrorCode.UNKNOWN_MEMBER_ID:
            said = "the group has members; stop them first"
        raise RefusedError(refusal.code, f"{at}: {said}")
