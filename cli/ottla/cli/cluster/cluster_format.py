"""Formats the controllers of a local cluster, which is required before their first startup.

Every controller gets the same initial voters, each with the directory id that the plan has for it.
Invariant FormattedOnce: a cluster that `cluster.json` marks as formatted is never formatted again.
A controller whose directory was wiped therefore fails with an error, and does not vote a second
time.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence

import trio

from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode
from ottla.metadata.records import Record
from ottla.model.ids import NodeId
from ottla.node.identity import CONTROLLER_LISTENER, format_directories, read_meta_properties
from ottla.node.local.forked_process_driver import fork_process, may_fork
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.directories.meta_properties import uuid_from_text
from ottla.storage.disk.real_disk_driver import RealDisk


def format_plan(plan: ClusterPlan, first_records: Sequence[Record] = ()) -> None:
    """Format the directories of all controllers of a local cluster, if its plan is new, and mark
    the plan as formatted. `first_records` are further metadata records of the new cluster."""
    if plan.is_formatted:
        return
    # cluster.json has the ids before any directory does. If formatting is interrupted, the next
    # attempt therefore uses the same ids.
    plan.write()
    trio.run(_format_controllers, plan, first_records)
    _mark(plan)


def format_in_child(plan: ClusterPlan) -> Callable[[], int]:
    """Start `format_plan` in a forked process. Returns a function that waits for the exit code of
    that process.

    Formatting starts threads that wait for disks, and a process with threads cannot fork the nodes.
    If the plan is already formatted, or if this process cannot fork, the returned function does not
    wait.
    """
    if plan.is_formatted or not may_fork():
        format_plan(plan)
        return lambda: 0
    plan.write()
    formatting = fork_process(lambda: _formatted(plan), name="format")

    def finish() -> int:
        code = formatting.wait()
        if code == 0:
            _mark(plan)
        return code

    return finish


def _formatted(plan: ClusterPlan) -> int:
    from ottla.cli.main import guarded

    def body(_arguments: Namespace) -> int:
        trio.run(_format_controllers, plan)
        return 0

    return guarded("up", body, Namespace())


def _mark(plan: ClusterPlan) -> None:
    plan.is_formatted = True
    plan.write()


async def _format_controllers(plan: ClusterPlan, more: Sequence[Record] = ()) -> None:
    voters = VoterSet(tuple(_voter(node) for node in plan.controllers))
    first_records = [*(plan.secure.first_records() if plan.secure else ()), *more]
    async with RealDisk() as disk:
        for voter, node in zip(voters, plan.controllers, strict=True):
            known = await read_meta_properties(disk, node.dir)
            if known is not None and known.directory_id == voter.directory_id:
                continue
            await format_directories(
                disk,
                {node.dir: voter.directory_id},
                cluster_id=plan.cluster_id,
                node_id=voter.id,
                metadata_log_dir=node.dir,
                initial_voters=voters,
                first_records=first_records,
            )


def _voter(node: ListedNode) -> Voter:
    host = node.address.rpartition(":")[0]
    return Voter(
        id=NodeId(node.id),
        directory_id=uuid_from_text(node.directory_id),
        endpoints=(VoterEndpoint(CONTROLLER_LISTENER, host, node.port),),
    )
