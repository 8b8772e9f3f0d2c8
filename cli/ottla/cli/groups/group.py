"""`ottla group list|describe|members|lag|remove-member|reset|offset-delete|delete`: shows and
changes consumer groups."""

import argparse
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from ottla.cli.common import CONNECTION, FORMAT, ISOLATION, counted, print_json
from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.groups.group_reset import RESET_OPTIONS, reset
from ottla.cli.groups.offset_delete import OFFSET_DELETE_OPTIONS, offset_delete
from ottla.cli.groups.remove_member import REMOVE_MEMBER_OPTIONS, remove_member
from ottla.cli.options import Declared, option
from ottla.cli.outcomes import show
from ottla.cli.tables import Milliseconds, print_table
from ottla.cli.terminal import clear_screen, draw, is_watched, note, say, wipe
from ottla.cli.verbs import Verb, run_admin, verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    GroupType,
)
from ottla.insight.facts.group_view import described, lags, of_group, owners, subscription_of
from ottla.insight.facts.lags_driver import GroupLag, all_lags, group_lag
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId

GroupBody = Callable[[Admin, argparse.Namespace], Awaitable[int]]
WATCH_S = 2.0
PATIENCE_S = 10.0
"""Maximum time in seconds that the command waits while the group's coordinator is being created,
moved or loaded."""
MOVING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
LAG_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")
ALL_COLUMNS = ("GROUP", "TOPICS", "PARTITIONS", "LAG", "BEHIND")
TIMED_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND")
TOPIC_COLUMNS = ("TOPIC", "PARTITIONS", "COMMITTED", "LAG")
MEMBER_COLUMNS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
CONSUMER_COLUMNS = (*MEMBER_COLUMNS[:4], "EPOCH", "SUBSCRIPTION", "PARTITIONS", "TARGET")


async def list_groups(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group list`: list the groups of every broker. Returns the exit code."""
    rows = []
    for broker in (await admin.cluster.metadata([])).brokers:
        node = NodeId(broker.node_id)
        try:
            groups = await admin.list_groups_of(node, states=arguments.state, types=arguments.type)
        except RefusedError as refusal:
            if refusal.code not in MOVING:
                raise
            note(f"ottla group: broker {node} is still loading groups; some may be missing")
            continue
        rows += [
            (group.group_id, group.state, group.type.value, group.protocol_type, int(node))
            for group in groups
        ]
    _show(arguments, ("GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR"), sorted(rows))
    return 0


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group describe`: show a group's state, members and lag. The table has one row for each
    topic; JSON has one entry for each partition. Returns the exit code."""
    group = await described(admin, arguments.group)
    rows = await _lag_rows(admin, group, arguments)
    if arguments.format == "json":
        print_json(
            {
                "group": group.group_id,
                "type": group.type.value,
                "state": group.state,
                "assignor": group.assignor or None,
                "group_epoch": group.group_epoch,
                "target_epoch": group.assignment_epoch,
                "members": len(group.members),
                "partitions": _objects(LAG_COLUMNS, rows),
            }
        )
        return 0
    sharing = f" sharing by {group.assignor}" if group.assignor else ""
    say(f"{group.group_id}: {group.state}, {counted(len(group.members), 'member')}{sharing}")
    if group.type is GroupType.CONSUMER:
        say(_epochs(group))
    if group.members:
        say()
        print_table(("MEMBER", "CLIENT", "HOST", "PARTITIONS"), map(_short_row, group.members))
    say()
    print_table(TOPIC_COLUMNS, _topic_rows(rows))
    say(f"lag by partition: 'ottla group lag {group.group_id}'")
    return 0


def _short_row(member: GroupMemberDescription) -> tuple[object, ...]:
    return member.member_id, member.client_id, _host(member), len(member.assignment)


def _topic_rows(rows: list[tuple[Any, ...]]) -> list[tuple[object, ...]]:
    """Return one table row for each topic of a group: the number of partitions, the number of
    partitions with a committed offset, and the sum of the lags."""
    lags_of: dict[str, list[int | None]] = defaultdict(list)
    for topic, _partition, _committed, _end, behind, _member in rows:
        lags_of[topic].append(behind)
    return [
        (topic, len(found), len(known), sum(known) if known else None)
        for topic, found in sorted(lags_of.items())
        for known in [[one for one in found if one is not None]]
    ]


def _epochs(group: GroupDescription) -> str:
    """Return a text with the epoch of a group of the consumer protocol, and the number of its
    members that have not reached their target assignment."""
    said = f"epoch {group.group_epoch}"
    if group.assignment_epoch != group.group_epoch:
        return f"{said}, its target assignment is still of epoch {group.assignment_epoch}"
    if behind := sum(one.member_epoch != group.assignment_epoch for one in group.members):
        return f"{said}, {counted(behind, 'member')} not there yet"
    if waiting := sum(one.assignment != one.target for one in group.members):
        return f"{said}, {counted(waiting, 'member')} waiting for partitions that others give up"
    return said


async def members(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group members`: show each member of a group with its partitions. Returns the exit
    code."""
    group = await described(admin, arguments.group)
    if arguments.format == "json":
        print_json([_member_object(one) for one in group.members])
        return 0
    is_consumer = group.type is GroupType.CONSUMER
    rows = [_member_row(one, is_consumer=is_consumer) for one in group.members]
    print_table(CONSUMER_COLUMNS if is_consumer else MEMBER_COLUMNS, rows)
    return 0


def _member_row(member: GroupMemberDescription, *, is_consumer: bool) -> tuple[object, ...]:
    who = (member.member_id, member.instance_id, member.client_id, _host(member))
    partitions = sorted(member.assignment)
    if not is_consumer:
        return *who, partitions
    # The target assignment is shown only if it differs.
    target = "same" if member.target == member.assignment else sorted(member.target or ())
    return *who, member.member_epoch, subscription_of(member), partitions, target


def _member_object(member: GroupMemberDescription) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": _host(member),
        "rack": member.rack,
        "protocol": member.type.value,
        "epoch": member.member_epoch,
        "topics": member.topics,
        "regex": member.regex,
        "partitions": list(map(str, sorted(member.assignment))),
        "target": None if member.target is None else list(map(str, sorted(member.target))),
    }


def _host(member: GroupMemberDescription) -> str:
    return member.host.removeprefix("/")


async def lag(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group lag`: show the lag of a group or of all groups, once or until interrupted.
    Returns the exit code."""
    while arguments.watch:
        clear_screen()
        await show_lag(admin, arguments)
        await trio.sleep(WATCH_S)
    return await show_lag(admin, arguments)


async def show_lag(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show the lag of a group in each partition for which it has a committed offset or a member
    with an assignment. Without a group, show the lag of all groups. Returns the exit code."""
    if arguments.group is None:
        return await _show_all(admin, arguments)
    group = await described(admin, arguments.group)
    rows = await _lag_rows(admin, group, arguments)
    timed = await group_lag(admin, group.group_id, isolation_level=arguments.isolation_level)
    ages = {(*one.at,): one.seconds for one in timed.partitions}
    if arguments.format == "json":
        objects = _objects(LAG_COLUMNS, rows)
        print_json(
            [row | {"seconds": ages.get((row["topic"], row["partition"]))} for row in objects]
        )
    else:
        shown = [(*row[:-1], _age(ages.get(row[:2])), row[-1]) for row in rows]
        print_table((*LAG_COLUMNS[:-1], "BEHIND", LAG_COLUMNS[-1]), shown)
    return 0


async def _show_all(admin: Admin, arguments: argparse.Namespace) -> int:
    try:
        found, refusals = await all_lags(
            admin, isolation_level=arguments.isolation_level, report=_draw_progress
        )
    finally:
        if is_watched():
            wipe()
    if arguments.format == "json":
        print_json(list(map(_lag_object, found)))
    elif arguments.partitions:
        print_table(
            TIMED_COLUMNS,
            [
                (of.group, *one.at, one.committed, one.end, one.lag, _age(one.seconds))
                for of in found
                for one in of.partitions
            ],
        )
    else:
        print_table(ALL_COLUMNS, map(_lag_row, found))
    for refusal in refusals[:-1]:
        note(f"ottla group: {refusal}")
    for refusal in refusals[-1:]:
        raise refusal
    return 0


def _draw_progress(noun: str, done: int, total: int) -> None:
    if is_watched():
        draw(f"{done} of {total} {noun}")


def _lag_row(of: GroupLag) -> tuple[object, ...]:
    topics = {one.at.topic for one in of.partitions}
    return of.group, len(topics), len(of.partitions), of.lag, _age(of.seconds)


def _lag_object(of: GroupLag) -> dict[str, Any]:
    return {
        "group": of.group,
        "lag": of.lag,
        "seconds": of.seconds,
        "partitions": [
            {
                "topic": one.at.topic,
                "partition": one.at.partition,
                "committed": one.committed,
                "end": one.end,
                "lag": one.lag,
                "seconds": one.seconds,
            }
            for one in of.partitions
        ],
    }


def _age(seconds: float | None) -> Milliseconds | None:
    return None if seconds is None else Milliseconds(seconds * 1_000)


async def _lag_rows(
    admin: Admin, group: GroupDescription, arguments: argparse.Namespace
) -> list[tuple[Any, ...]]:
    working = owners(group)
    found = await lags(admin, group.group_id, working, isolation_level=arguments.isolation_level)
    return [
        (
            one.partition.topic,
            one.partition.partition,
            one.committed,
            one.end,
            one.lag,
            working.get(one.partition),
        )
        for one in found
    ]


async def delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group delete`: delete every named group if the user confirms, and report each refusal.
    Returns the exit code."""
    names = ", ".join(map(repr, arguments.groups))
    if not await confirm_in_loop(arguments, f"delete {names} with all committed offsets?"):
        return 0
    deleted, refusals = [], []
    for group in arguments.groups:
        try:
            await admin.delete_group(group)
            deleted.append((group,))
        except RefusedError as refusal:
            refusals.append(of_group(group, refusal))
    show(arguments, ("DELETED",), deleted, refusals, command="group")
    return 0


def _show(
    arguments: argparse.Namespace, headers: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    if arguments.format == "json":
        print_json(_objects(headers, rows))
    else:
        print_table(headers, rows)


def _objects(headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(map(str.lower, headers), row, strict=True)) for row in rows]


def _verb(name: str, summary: str, body: GroupBody, *options: Declared) -> Verb:
    return verb(name, summary, partial(_run, body), *options, *CONNECTION, FORMAT)


def _run(body: GroupBody, arguments: argparse.Namespace) -> int:
    """Run a verb of `ottla group` with an admin client. The client's timeout is the maximum wait
    for a coordinator that is being created, moved or loaded. Returns the exit code."""

    async def ask(admin: Admin, arguments: argparse.Namespace) -> int:
        # An unreachable cluster is an error at once. An unreachable coordinator is retried, since
        # it may move to another broker.
        await admin.cluster.metadata([])
        return await body(admin, arguments)

    return run_admin(ask, arguments, timeout_s=PATIENCE_S)


GROUP = option("group GROUP", "id of a group")
VERBS = (
    _verb(
        "list",
        "list groups",
        list_groups,
        option(
            "--type TYPE ...",
            "type of the groups: classic, consumer, share or streams; may be repeated (default: "
            "all)",
        ),
        option(
            "--state STATE ...",
            "state of the groups, such as Empty; may be repeated (default: all)",
        ),
    ),
    _verb(
        "describe",
        "show state, members, and lag by topic",
        describe,
        GROUP,
        ISOLATION,
    ),
    _verb(
        "members",
        "show a group's members and their partitions",
        members,
        GROUP,
    ),
    _verb(
        "lag",
        "show how far a group, or each of all groups, is behind, in records and in time",
        lag,
        option("--watch", "refresh until Ctrl-C"),
        option(
            "--partitions",
            "without GROUP: show each partition instead of the sums (JSON always has both)",
        ),
        option("group GROUP", "id of a group (default: all groups)", nargs="?"),
        ISOLATION,
    ),
    _verb(
        "remove-member",
        "remove members, so that a rebalance no longer waits for them",
        remove_member,
        GROUP,
        *REMOVE_MEMBER_OPTIONS,
    ),
    _verb(
        "reset",
        "show and move a group's committed offsets",
        reset,
        GROUP,
        *RESET_OPTIONS,
    ),
    _verb(
        "offset-delete",
        "show and delete committed offsets of topics or partitions",
        offset_delete,
        GROUP,
        *OFFSET_DELETE_OPTIONS,
    ),
    _verb(
        "delete",
        "delete groups without members, with their offsets",
        delete,
        option("groups GROUP ...", "id of a group"),
        YES,
    ),
)
