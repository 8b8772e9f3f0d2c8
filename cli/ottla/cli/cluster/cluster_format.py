"""Formats the controllers of a local cluster: the explicit first start that a quorum needs.

Every controller gets the same initial voters, each with the directory id that the plan kept for it.
Invariant FormattedOnce: what `cluster.json` calls formatted is never formatted again, so that a
controller whose directory was wiped says so instead of voting a second time.
"""

from argparse import Namespace
from collections.abc import Callable

import trio

from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode
from ottla.model.ids import NodeId
from ottla.node.forked_process_driver import fork_process, may_fork
from ottla.node.identity import CONTROLLER_LISTENER, format_directories, read_meta_properties
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.disk import RealDisk
from ottla.storage.meta_properties import uuid_from_text


def format_plan(plan: ClusterPlan) -> None:
    """Format the directories of all controllers, if the plan is new, and mark it as formatted."""
    if plan.is_formatted:
        return
    # The ids stand in the file before any directory has them: a first start that was interrupted
    # goes on with the same ones.
    plan.write()
    trio.run(_format_controllers, plan)
    _mark(plan)


def format_apart(plan: ClusterPlan) -> Callable[[], int]:
    """Begin to format as `format_plan` does, in a forked process; return what waits for its code.

    The threads by which it waits for disks would keep this process from forking nodes.
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


async def _format_controllers(plan: ClusterPlan) -> None:
    voters = VoterSet(tuple(_voter(node) for node in plan.controllers))
    first_records = plan.secure.first_records() if plan.secure else []
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
