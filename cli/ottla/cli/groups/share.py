"""`ottla share list|describe|peek|redrive|offsets|reset|offset-delete|delete`: shows and changes
share groups."""

import argparse
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ottla.cli.common import CONNECTION, FORMAT, counted, print_json
from ottla.cli.confirmation import CONFIRMATION, YES, confirm_in_loop
from ottla.cli.groups.group_reset import RESET_OPTIONS, ResetTarget, reset_offsets
from ottla.cli.groups.redrive_options import REDRIVE_OPTIONS
from ottla.cli.groups.share_delivery_view import delivery_object, delivery_text
from ottla.cli.groups.share_peek import PEEK_OPTIONS
from ottla.cli.groups.share_peek import peek as show_records
from ottla.cli.options import Declared, option
from ottla.cli.outcomes import show
from ottla.cli.tables import print_table
from ottla.cli.terminal import say
from ottla.cli.verbs import Verb, run_admin, verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupDescription, GroupMemberDescription
from ottla.client.admin_parts.admin_share_groups import ShareOffset, ShareRecordCounts
from ottla.insight.facts.group_view import of_group
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition

ShareBody = Callable[[Admin, argparse.Namespace], Awaitable[int]]
PATIENCE_S = 10.0
"""Maximum time in seconds that the command waits while the group's coordinator is being created,
moved or loaded."""
LIST_COLUMNS = ("GROUP", "STATE", "COORDINATOR")
MEMBER_COLUMNS = ("MEMBER", "CLIENT", "HOST", "EPOCH", "SUBSCRIPTION", "PARTITIONS")
OFFSET_COLUMNS = ("TOPIC", "PARTITION", "START", "LAG", "LEADER-EPOCH")
PARTITION_COLUMNS = (*OFFSET_COLUMNS, "RECORDS")


async def list_groups(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share list`: list the share groups of every broker. Returns the exit code."""
    rows = [
        (group.group_id, group.state, int(group.coordinator))
        for group in await admin.list_share_groups(states=arguments.state)
    ]
    show(arguments, LIST_COLUMNS, rows, command="share")
    return 0


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share describe`: show a share group's state, members and progress. Returns the exit
    code."""
    group = await _described(admin, arguments.group)
    offsets = await _offsets(admin, arguments.group)
    deliveries = await _deliveries(admin, arguments.group, [at for at, _ in offsets])
    if arguments.format == "json":
        print_json(
            {
                "group": group.group_id,
                "state": group.state,
                "assignor": group.assignor or None,
                "group_epoch": group.group_epoch,
                "target_epoch": group.assignment_epoch,
                "members": [_member_object(one) for one in group.members],
                "partitions": [
                    {**_offset_object(*one), "records": delivery_object(deliveries.get(one[0]))}
                    for one in offsets
                ],
            }
        )
        return 0
    say(
        f"{group.group_id}: {group.state}, {counted(len(group.members), 'member')}, "
        f"epoch {group.group_epoch}, its target assignment is of epoch {group.assignment_epoch}"
    )
    if group.members:
        say()
        print_table(MEMBER_COLUMNS, map(_member_row, group.members))
    say()
    print_table(
        PARTITION_COLUMNS,
        ((*_offset_row(*one), delivery_text(deliveries.get(one[0]))) for one in offsets),
    )
    return 0


async def peek(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share peek`: show the records of a share group that are in flight (delivered, but not
    yet acknowledged). Returns the exit code."""
    return await show_records(admin, arguments, await _described(admin, arguments.group))


async def redrive(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share redrive`: move the dead letters of a share group back to their partitions, if
    the user confirms. Returns the exit code."""
    # Imported late: only this verb needs a producer.
    from ottla.cli.groups.share_redrive import redrive as move_letters

    return await move_letters(admin, arguments)


async def offsets(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share offsets`: show the start offset and the lag of a share group in each partition.
    Returns the exit code."""
    await _described(admin, arguments.group)
    found = await _offsets(admin, arguments.group)
    if arguments.format == "json":
        print_json([_offset_object(*one) for one in found])
    else:
        print_table(OFFSET_COLUMNS, (_offset_row(*one) for one in found))
    return 0


async def reset(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share reset`: show the present and the new start offsets of a share group without
    members. Set the new offsets if the user confirms. Returns the exit code."""
    return await reset_offsets(
        admin, arguments, ResetTarget("share group", "share", _start_offsets, _alter)
    )


async def offset_delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share offset-delete`: delete the start offsets of a share group in topics if the user
    confirms. Returns the exit code."""
    group, topics = arguments.group, list(dict.fromkeys(arguments.topic))
    question = f"delete the offsets of share group {group!r} in {counted(len(topics), 'topic')}?"
    if not arguments.yes:
        show(arguments, ("TOPIC",), [(topic,) for topic in topics], command="share")
    if not await confirm_in_loop(arguments, question):
        return 0
    try:
        codes = await admin.delete_share_group_offsets(group, topics)
    except RefusedError as refusal:
        raise _refused(group, refusal) from None
    refusals = [
        RefusedError(code, f"{topic}: {row_of(code).meaning}")
        for topic, code in codes.items()
        if code is not ErrorCode.NONE
    ]
    deleted = [(topic,) for topic, code in codes.items() if code is ErrorCode.NONE]
    if arguments.yes:
        show(arguments, ("DELETED",), deleted, refusals, command="share")
    elif refusals:
        raise refusals[0]
    return 0


async def delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla share delete`: delete every named share group if the user confirms, and report each
    refusal. Returns the exit code."""
    names = ", ".join(map(repr, arguments.groups))
    if not await confirm_in_loop(arguments, f"delete {names} with all offsets?"):
        return 0
    deleted, refusals = [], []
    for group in arguments.groups:
        try:
            await _described(admin, group)
            await admin.delete_group(group)
            deleted.append((group,))
        except RefusedError as refusal:
            refusals.append(of_group(group, refusal))
    show(arguments, ("DELETED",), deleted, refusals, command="share")
    return 0


async def _described(admin: Admin, group: str) -> GroupDescription:
    try:
        return await admin.describe_share_group(group)
    except RefusedError as refusal:
        raise _refused(group, refusal) from None


def _refused(group: str, refusal: RefusedError) -> RefusedError:
    """Return the cluster's refusal with the name of the share group and a remedy in its message."""
    if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
        reason = f"there is no share group {group!r}; see 'ottla share list'"
        return RefusedError(refusal.code, reason)
    if refusal.code is ErrorCode.NON_EMPTY_GROUP:
        return RefusedError(refusal.code, f"share group {group!r} has members; stop them first")
    if refusal.code is ErrorCode.UNSUPPORTED_VERSION:
        return RefusedError(
            refusal.code,
            "share groups are off; see 'ottla cluster features upgrade share.version=1'",
        )
    return of_group(group, refusal)


async def _offsets(admin: Admin, group: str) -> list[tuple[TopicPartition, ShareOffset]]:
    return sorted((await admin.share_group_offsets(group)).items())


async def _deliveries(
    admin: Admin, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, ShareRecordCounts]:
    """Return the numbers of a share group's records that are neither acknowledged nor archived, by
    partition. Returns an empty mapping if brokers do not report these numbers."""
    try:
        return await admin.share_group_deliveries(group, partitions)
    except RefusedError:
        return {}


async def _start_offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Return the known start offsets of a share group, by partition."""
    try:
        found = await admin.share_group_offsets(group)
    except RefusedError as refusal:
        raise _refused(group, refusal) from None
    return {at: one.start_offset for at, one in found.items() if one.start_offset is not None}


async def _alter(admin: Admin, group: str, offsets: dict[TopicPartition, int]) -> None:
    try:
        refused = await admin.try_alter_share_group_offsets(group, offsets)
    except RefusedError as refusal:
        raise _refused(group, refusal) from None
    for at, reason in refused.items():
        raise RefusedError(reason.code, f"{at}: {reason.message}")


def _host(member: GroupMemberDescription) -> str:
    return member.host.removeprefix("/")


def _member_row(member: GroupMemberDescription) -> tuple[object, ...]:
    return (
        member.member_id,
        member.client_id,
        _host(member),
        member.member_epoch,
        list(member.topics or ()),
        sorted(member.assignment),
    )


def _member_object(member: GroupMemberDescription) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": _host(member),
        "rack": member.rack,
        "epoch": member.member_epoch,
        "topics": member.topics,
        "partitions": list(map(str, sorted(member.assignment))),
    }


def _offset_row(at: TopicPartition, offset: ShareOffset) -> tuple[object, ...]:
    return (*at, offset.start_offset, offset.lag, offset.leader_epoch)


def _offset_object(at: TopicPartition, offset: ShareOffset) -> dict[str, Any]:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "start": offset.start_offset,
        "lag": offset.lag,
        "leader_epoch": offset.leader_epoch,
        "error": None if offset.error is None else offset.error.message,
    }


def _verb(name: str, summary: str, body: ShareBody, *options: Declared) -> Verb:
    return verb(name, summary, partial(_run, body), *options, *CONNECTION, FORMAT)


def _run(body: ShareBody, arguments: argparse.Namespace) -> int:
    """Run a verb of `ottla share` with an admin client. The client's timeout is the maximum wait
    for a coordinator that is being created, moved or loaded. Returns the exit code."""

    async def ask(admin: Admin, arguments: argparse.Namespace) -> int:
        # An unreachable cluster is an error at once.
        await admin.cluster.metadata([])
        return await body(admin, arguments)

    return run_admin(ask, arguments, timeout_s=PATIENCE_S)


GROUP = option("group GROUP", "id of a share group")
VERBS = (
    _verb(
        "list",
        "list share groups",
        list_groups,
        option(
            "--state STATE ...",
            "state of the groups: Empty or Stable; may be repeated (default: all)",
        ),
    ),
    _verb("describe", "show state, members, start offsets and lags", describe, GROUP),
    _verb("peek", "show the records in flight, with members and locks", peek, GROUP, *PEEK_OPTIONS),
    _verb(
        "redrive",
        "move dead letters back to the partitions of their records",
        redrive,
        GROUP,
        *REDRIVE_OPTIONS,
    ),
    _verb("offsets", "show the start offset and the lag of each partition", offsets, GROUP),
    _verb("reset", "show and move the start offsets of a group", reset, GROUP, *RESET_OPTIONS),
    _verb(
        "offset-delete",
        "delete the offsets of topics",
        offset_delete,
        GROUP,
        option("--topic TOPIC ...", "topic; may be repeated", required=True),
        CONFIRMATION,
    ),
    _verb(
        "delete",
        "delete share groups without members, with their offsets",
        delete,
        option("groups GROUP ...", "id of a share group"),
        YES,
    ),
)
