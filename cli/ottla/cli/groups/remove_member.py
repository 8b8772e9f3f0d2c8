"""`ottla group remove-member`: removes members from a group, so that a rebalance no longer waits
for them."""

import argparse

from ottla.cli.common import counted
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import Declared, option
from ottla.cli.outcomes import show
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupDescription, MemberToRemove
from ottla.insight.facts.group_view import described_of_any_kind
from ottla.insight.facts.member_removal_driver import (
    check_removable,
    removal_of,
    remove_members,
)
from ottla.model.errors import ConfigError

COLUMNS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
REMOVE_MEMBER_OPTIONS: tuple[Declared, ...] = (
    option("members MEMBER", "member id; may be repeated", nargs="*", default=[]),
    option(
        "--instance-id ID ...",
        "group.instance.id of a static member; may be repeated",
    ),
    option("--all", "remove all members"),
    option("--reason TEXT", "text for the coordinator's log at Apache Kafka", default=""),
    CONFIRMATION,
)


async def remove_member(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group remove-member`: show the members that will be removed, and remove them if the
    user confirms. Reports each refusal. Returns the exit code."""
    if arguments.all == bool(arguments.members or arguments.instance_id):
        raise ConfigError("MEMBER", "is needed, or --instance-id, or --all alone")
    group = await described_of_any_kind(admin, arguments.group)
    check_removable(group)
    wanted = _wanted(group, arguments)
    rows = {one: _row(group, one) for one in wanted}
    if not wanted:
        show(arguments, COLUMNS, [], command="group")
        note(f"group {group.group_id!r} has no members")
        return 0
    if not arguments.yes:
        show(arguments, COLUMNS, list(rows.values()), command="group")
        question = f"remove {counted(len(wanted), 'member')} from group {group.group_id!r}?"
        if not await confirm_in_loop(arguments, question):
            return 0
    refused = await remove_members(admin, group.group_id, wanted, arguments.reason)
    if arguments.yes:
        removed = [row for one, row in rows.items() if one not in refused]
        show(arguments, COLUMNS, removed, list(refused.values()), command="group")
    for refusal in refused.values():
        raise refusal
    note("a removed client that still runs joins the group again; end its process if it hangs")
    return 0


def _wanted(group: GroupDescription, arguments: argparse.Namespace) -> list[MemberToRemove]:
    if arguments.all:
        return list(map(removal_of, group.members))
    named = [MemberToRemove(member) for member in arguments.members]
    named += [MemberToRemove(instance_id=instance) for instance in arguments.instance_id]
    return list(dict.fromkeys(named))


def _row(group: GroupDescription, wanted: MemberToRemove) -> tuple[object, ...]:
    """Return the table row of a member that the command removes. A member whose first join is not
    finished has no description, so its row contains only the id."""
    for one in group.members:
        if wanted.member_id == one.member_id or (
            wanted.instance_id is not None and wanted.instance_id == one.instance_id
        ):
            host = one.host.removeprefix("/")
            return one.member_id, one.instance_id, one.client_id, host, len(one.assignment)
    return wanted.member_id or None, wanted.instance_id, None, None, None
