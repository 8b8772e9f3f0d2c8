"""Nemesis that changes the voters: controllers leave and join the quorum while the cluster serves
requests.

A voter is removed, or loses its directory and returns with a new one (KIP-853). It is the active
controller as often as any other. The fault is healed when the controller is a voter again. After a
timeout, the nemesis describes the quorum before it repeats a change, as an operator must do.
"""

import shutil
from collections.abc import Awaitable, Callable
from random import Random
from uuid import UUID

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_cluster import QuorumDescription
from ottla.jepsen.processes.nemeses.nemesis import FaultReport, Nemesis
from ottla.jepsen.processes.nodes import ProcessNode
from ottla.model.errors import OttlaError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_address
from ottla.node.clock_driver import RealRng
from ottla.node.identity import CONTROLLER_LISTENER, format_directories, read_meta_properties
from ottla.storage.disk.real_disk_driver import RealDisk

CONTROLLERS_MIN = 3

CHANGE_TIMEOUT_S = 20.0
"""Time limit in seconds for one change of the quorum's voters. Other faults may prevent a change,
which is then reported as unfinished."""
AGAIN_S = 0.3


class ChangedVoters(Nemesis):
    """A fault in which a controller leaves the quorum's voters and joins them again.

    The controller sometimes returns with a new directory."""

    name = "membership"

    async def inject_fault(self, rng: Random) -> FaultReport:
        """Remove a random controller from the quorum's voters, and return a report of the fault."""
        free = [one for one in self.cluster.fault_limits.free() if one in self.cluster.controllers]
        if len(free) < CONTROLLERS_MIN:
            return {}
        (victim,) = self.choose(free, rng, (1,))
        is_disk_lost = rng.random() < 0.5
        old = await _directory_id_of(victim)
        if is_disk_lost:
            await victim.kill()
            await _format_again(victim)
            victim.start()
        is_made = await self._change(
            lambda admin: admin.remove_voter(victim.id, old),
            lambda quorum: old not in {one.directory_id for one in quorum.voters},
        )
        report: FaultReport = {"nodes": [victim.name], "disk": "lost" if is_disk_lost else "kept"}
        return report if is_made else {**report, "unfinished": True}

    async def heal_fault(self) -> FaultReport:
        """Start the removed controller if it is down, and add it to the voters again. Returns a
        report of the result."""
        report = await self.start_again()
        late = [node.name for node in self.held if not await self._add(node)]
        added = [node.name for node in self.held if node.name not in late]
        return {**report, "added": added, **({"unfinished": late} if late else {})}

    async def _add(self, node: ProcessNode) -> bool:
        """Add a controller to the quorum's voters. Returns False if that takes longer than
        CHANGE_TIMEOUT_S."""
        directory_id = await _directory_id_of(node)
        host, port = parse_address(node.endpoint.advertised)
        listeners = {CONTROLLER_LISTENER: (host, port)}
        return await self._change(
            lambda admin: admin.add_voter(node.id, directory_id, listeners),
            lambda quorum: directory_id in {one.directory_id for one in quorum.voters},
        )

    async def _change(
        self,
        request: Callable[[Admin], Awaitable[None]],
        is_made: Callable[[QuorumDescription], bool],
    ) -> bool:
        """Request a change of the quorum's voters until `is_made` returns True for the quorum's
        state. Returns False after CHANGE_TIMEOUT_S."""
        with trio.move_on_after(CHANGE_TIMEOUT_S):
            async with open_admin(self.cluster.bootstrap) as admin:
                while True:
                    try:
                        if is_made(await admin.describe_quorum()):
                            return True
                        await request(admin)
                    except OttlaError:
                        await trio.sleep(AGAIN_S)
        return False


async def _directory_id_of(node: ProcessNode) -> UUID:
    properties = await read_meta_properties(RealDisk(), str(node.disk.data))
    assert properties is not None
    assert properties.directory_id is not None
    return properties.directory_id


async def _format_again(node: ProcessNode) -> None:
    """Delete the metadata directories of a stopped controller, and format new directories without
    voters."""
    data = node.disk.data
    properties = await read_meta_properties(RealDisk(), str(data))
    assert properties is not None
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    await format_directories(
        RealDisk(),
        {str(data): RealRng().uuid()},
        cluster_id=properties.cluster_id,
        node_id=NodeId(node.id),
        metadata_log_dir=str(data),
        is_joining=True,
    )
