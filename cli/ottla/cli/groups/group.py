"""`ottla group list|describe|members|lag|reset|delete`."""

import argparse
from typing import Any

import trio

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    counted,
    print_json,
    print_table,
    run_async,
)
from ottla.cli.groups.group_requests import MOVING, ask_coordinator, lags
from ottla.cli.groups.group_reset import add_reset_arguments, reset
from ottla.cli.groups.group_view import CONSUMER, GroupView, MemberView, described
from ottla.cli.terminal import clear_screen, note, say
from ottla.client.cluster import Cluster, open_cluster, raise_for
from ottla.model.errors import ErrorCode, row_of
from ottla.model.ids import NodeId
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse

WATCH_S = 2.0
LAG_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")
MEMBER_COLUMNS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
CONSUMER_COLUMNS = (*MEMBER_COLUMNS[:4], "EPOCH", "SUBSCRIPTION", "PARTITIONS", "TARGET")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla group'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    list_ = verbs.add_parser("list", help="list groups")
    describe_ = verbs.add_parser("describe", help="show a group and how far it is behind")
    members_ = verbs.add_parser("members", help="show who is in a group, and who works on what")
    lag_ = verbs.add_parser("lag", help="show how far a group is behind")
    lag_.add_argument("--watch", action="store_true", help="show it again and again")
    reset_ = verbs.add_parser("reset", help="move a group's offsets; without --execute only show")
    delete_ = verbs.add_parser("delete", help="delete groups that nobody is in, with their offsets")
    list_.add_argument("--type", action="append", default=[], help="only of classic or consumer")
    list_.add_argument(
        "--state", action="append", default=[], help="only in such a state: Empty, …"
    )
    for verb in (describe_, members_, lag_, reset_):
        verb.add_argument("group", metavar="GROUP")
    delete_.add_argument("groups", nargs="+", metavar="GROUP")
    add_reset_arguments(reset_)
    for verb in (list_, describe_, members_, lag_, reset_, delete_):
        add_cluster_arguments(verb)
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_cluster(bootstrap_of(arguments)) as cluster:
            return await VERBS[arguments.verb](cluster, arguments)

    return run_async(body)


async def list_groups(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """List the groups of every broker."""
    rows = []
    request = ListGroupsRequest(states_filter=arguments.state, types_filter=arguments.type)
    for broker in (await cluster.metadata([])).brokers:
        node = NodeId(broker.node_id)
        answer = await cluster.request(request, ListGroupsResponse, node=node)
        if answer.error_code in MOVING:
            note(f"ottla group: broker {node} is still loading groups; some may be missing")
        else:
            raise_for(answer.error_code)
        rows += [
            (group.group_id, group.group_state, group.group_type, group.protocol_type, int(node))
            for group in answer.groups
        ]
    _show(arguments, ("GROUP", "STATE", "TYPE", "PROTOCOL", "COORDINATOR"), sorted(rows))
    return 0


async def describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show a group's state, then how far it is behind."""
    group = await described(cluster, arguments.group)
    rows = await _lag_rows(cluster, group)
    if arguments.format == "json":
        print_json(
            {
                "group": group.group_id,
                "type": group.type,
                "state": group.state,
                "assignor": group.assignor,
                "group_epoch": group.group_epoch,
                "target_epoch": group.target_epoch,
                "members": len(group.members),
                "partitions": _objects(LAG_COLUMNS, rows),
            }
        )
        return 0
    sharing = f" sharing by {group.assignor}" if group.assignor else ""
    say(f"{group.group_id}: {group.state}, {counted(len(group.members), 'member')}{sharing}")
    if group.type == CONSUMER:
        say(_epochs(group))
    say()
    print_table(LAG_COLUMNS, rows)
    return 0


def _epochs(group: GroupView) -> str:
    """Say how far a group of the consumer protocol is on its way to its target."""
    said = f"epoch {group.group_epoch}"
    if group.target_epoch != group.group_epoch:
        return f"{said}, its target assignment is still of epoch {group.target_epoch}"
    if behind := sum(one.epoch != group.target_epoch for one in group.members):
        return f"{said}, {counted(behind, 'member')} not there yet"
    if waiting := sum(one.partitions != one.target for one in group.members):
        return f"{said}, {counted(waiting, 'member')} waiting for partitions that others give up"
    return said


async def members(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show each member with what it works on."""
    group = await described(cluster, arguments.group)
    if arguments.format == "json":
        print_json([_member_object(one) for one in group.members])
        return 0
    is_consumer = group.type == CONSUMER
    rows = [
        (
            one.member_id,
            one.instance_id,
            one.client_id,
            one.host,
            *((one.epoch, one.subscription) if is_consumer else ()),
            one.partitions,
            # It is told only where it is another one.
            *((one.target if one.target != one.partitions else "same",) if is_consumer else ()),
        )
        for one in group.members
    ]
    print_table(CONSUMER_COLUMNS if is_consumer else MEMBER_COLUMNS, rows)
    return 0


def _member_object(member: MemberView) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "protocol": member.protocol,
        "epoch": member.epoch,
        "topics": member.topics,
        "regex": member.regex,
        "partitions": list(map(str, member.partitions)),
        "target": None if member.target is None else list(map(str, member.target)),
    }


async def lag(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show how far a group is behind, once or until interrupted."""
    while arguments.watch:
        clear_screen()
        await show_lag(cluster, arguments)
        await trio.sleep(WATCH_S)
    return await show_lag(cluster, arguments)


async def show_lag(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show each partition that a group committed or works on."""
    group = await described(cluster, arguments.group)
    _show(arguments, LAG_COLUMNS, await _lag_rows(cluster, group))
    return 0


async def _lag_rows(cluster: Cluster, group: GroupView) -> list[tuple[Any, ...]]:
    working = group.owners()
    return [
        (
            one.partition.topic,
            one.partition.partition,
            one.committed,
            one.end,
            one.lag,
            working.get(one.partition),
        )
        for one in await lags(cluster, group.group_id, working)
    ]


async def delete(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Delete every named group, or say why not."""
    deleted, refusals = [], []
    for group in arguments.groups:
        answer = await ask_coordinator(
            cluster,
            group,
            DeleteGroupsRequest(groups_names=[group]),
            DeleteGroupsResponse,
            lambda answer: answer.results[0].error_code,
        )
        code = answer.results[0].error_code
        if code == ErrorCode.NONE:
            deleted.append((group,))
        else:
            refusals.append((code, f"group {group!r}: {row_of(code).meaning}"))
    if deleted or not refusals:
        _show(arguments, ("DELETED",), deleted)
    for code, message in refusals[:-1]:
        note(f"ottla group: {row_of(code).name}: {message}")
    for code, message in refusals[-1:]:
        raise_for(code, message)
    return 0


VERBS = {
    "list": list_groups,
    "describe": describe,
    "members": members,
    "lag": lag,
    "reset": reset,
    "delete": delete,
}


def _show(
    arguments: argparse.Namespace, headers: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    if arguments.format == "json":
        print_json(_objects(headers, rows))
    else:
        print_table(headers, rows)


def _objects(headers: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(map(str.lower, headers), row, strict=True)) for row in rows]
