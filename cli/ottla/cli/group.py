"""`ottla group list|describe|members|lag|reset|delete`."""

import argparse
from typing import Any

import trio

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    counted,
    note,
    print_json,
    print_table,
    run_async,
)
from ottla.cli.group_requests import (
    MOVING,
    ask_coordinator,
    described,
    lags,
    owners,
    partitions_of,
)
from ottla.cli.group_reset import add_reset_arguments, reset
from ottla.client.cluster import Cluster, open_cluster, raise_for
from ottla.model.errors import ErrorCode, row_of
from ottla.model.ids import NodeId
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse

WATCH_S = 2.0
CLEAR = "\x1b[H\x1b[2J"
LAG_COLUMNS = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER")


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
    for broker in (await cluster.metadata([])).brokers:
        node = NodeId(broker.node_id)
        answer = await cluster.request(ListGroupsRequest(), ListGroupsResponse, node=node)
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
    if arguments.format == "table":
        sharing = f" sharing by {group.protocol_data}" if group.protocol_data else ""
        size = counted(len(group.members), "member")
        print(f"{group.group_id}: {group.group_state}, {size}{sharing}\n")
    return await show_lag(cluster, arguments)


async def members(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show each member with what it works on."""
    group = await described(cluster, arguments.group)
    rows = [
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            [str(at) for at in partitions_of(member.member_assignment)],
        )
        for member in group.members
    ]
    _show(arguments, ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"), rows)
    return 0


async def lag(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show how far a group is behind, once or until interrupted."""
    while arguments.watch:
        print(CLEAR, end="")
        await show_lag(cluster, arguments)
        await trio.sleep(WATCH_S)
    return await show_lag(cluster, arguments)


async def show_lag(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show each partition that a group committed or works on."""
    working = owners(await described(cluster, arguments.group))
    rows = [
        (
            one.partition.topic,
            one.partition.partition,
            one.committed,
            one.end,
            one.lag,
            working.get(one.partition),
        )
        for one in await lags(cluster, arguments.group)
    ]
    _show(arguments, LAG_COLUMNS, rows)
    return 0


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
        print_json([dict(zip(map(str.lower, headers), row, strict=True)) for row in rows])
    else:
        print_table(headers, rows)
