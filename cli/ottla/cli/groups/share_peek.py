"""`ottla share peek`: shows the records of a share group that are in flight. For each record, the
table shows the member that has acquired it, the end of its acquisition lock, and the delivery
count."""

import argparse
from collections.abc import Iterator
from typing import Any

from ottla.cli.common import counted, print_json
from ottla.cli.groups.group_reset import partitions_named
from ottla.cli.groups.share_delivery_view import time_text
from ottla.cli.options import Declared, option
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupDescription, GroupMemberDescription
from ottla.client.admin_parts.admin_share_groups import ShareRecordRange, ShareRecordState
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition

COLUMNS = (
    "TOPIC",
    "PARTITION",
    "FIRST",
    "LAST",
    "STATE",
    "DELIVERIES",
    "LOCKED-UNTIL",
    "MEMBER",
    "CLIENT",
    "HOST",
)
STATES = {
    ShareRecordState.AVAILABLE: "waiting",
    ShareRecordState.ACQUIRED: "acquired",
    ShareRecordState.ACKNOWLEDGED: "accepted",
    ShareRecordState.ARCHIVING: "dead letter",
    ShareRecordState.ARCHIVED: "archived",
}
LIMIT = 100
PEEK_OPTIONS: tuple[Declared, ...] = (
    option(
        "--topic TOPIC[:PARTITION,…] ...",
        "topic, or single partitions of it; may be repeated (default: all of the group)",
    ),
    option("--offset OFFSET", "first offset to show, in one partition (default: 0)", type=int),
    option("--limit N", "number of ranges to show (default: %(default)s)", type=int, default=LIMIT),
    option("--waiting", "show the records that wait for a delivery, too"),
)

FoundRange = tuple[TopicPartition, ShareRecordRange]


async def peek(admin: Admin, arguments: argparse.Namespace, group: GroupDescription) -> int:
    """Print the records of a share group that are in flight, with the members that have acquired
    them. Returns the exit code."""
    if arguments.limit < 1:
        raise ConfigError("--limit", f"is {arguments.limit}; it must be at least 1")
    if arguments.topic:
        partitions = await partitions_named(admin, arguments.topic)
    else:
        partitions = sorted(await admin.share_group_offsets(group.group_id))
    start_offset = arguments.offset or 0
    if start_offset < 0 or (start_offset and len(partitions) != 1):
        raise ConfigError("--offset", "must be 0 or more, and needs --topic TOPIC:PARTITION")
    found: list[FoundRange] = []
    for at in partitions:
        # One more than is shown, to find out whether there are more.
        ranges = await admin.share_group_records(
            group.group_id,
            at,
            start_offset=start_offset,
            count_max=arguments.limit + 1 - len(found),
            has_waiting=arguments.waiting,
        )
        found += ((at, one) for one in ranges)
        if len(found) > arguments.limit:
            break
    shown, rest = found[: arguments.limit], found[arguments.limit :]
    members = {member.member_id: member for member in group.members}
    if arguments.format == "json":
        print_json([_object(at, one, members) for at, one in shown])
    else:
        print_table(COLUMNS, _rows(shown, members))
    for at, one in rest:
        note(
            f"only the first {counted(len(shown), 'range')} shown; continue with "
            f"--topic {at.topic}:{at.partition} --offset {one.first_offset}, or raise --limit"
        )
    return 0


def _rows(
    found: list[FoundRange], members: dict[str, GroupMemberDescription]
) -> Iterator[tuple[object, ...]]:
    for at, one in found:
        member = members.get(one.member_id or "")
        state = STATES[one.state]
        yield (
            *at,
            one.first_offset,
            one.last_offset,
            f"{state}, being stored" if one.is_being_stored else state,
            one.delivery_count,
            time_text(one.lock_end_ms),
            one.member_id,
            None if member is None else member.client_id,
            None if member is None else member.host.removeprefix("/"),
        )


def _object(
    at: TopicPartition, one: ShareRecordRange, members: dict[str, GroupMemberDescription]
) -> dict[str, Any]:
    member = members.get(one.member_id or "")
    return {
        "topic": at.topic,
        "partition": at.partition,
        "first": one.first_offset,
        "last": one.last_offset,
        "state": STATES[one.state].replace(" ", "_"),
        "is_being_stored": one.is_being_stored,
        "deliveries": one.delivery_count,
        "locked_until_ms": one.lock_end_ms,
        "member": one.member_id,
        "client": None if member is None else member.client_id,
        "host": None if member is None else member.host.removeprefix("/"),
    }
