"""Requests of strangers against three controllers that are processes.

By default it ends after some hundred requests. OTTLA_ORACLE_SECONDS is for how long instead.

The seed of a run is OTTLA_ORACLE_SEED, so that it can be repeated.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from ottla.model.ids import NodeId
from ottla.node.clock_driver import RealRng
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.node.local.local_nodes_driver import free_ports, wait_until_ready
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.disk.real_disk_driver import RealDisk
from tests.jepsen.oracles.end_of_process import deaths_among
from tests.jepsen.oracles.grpc_end_of_process import hunt_controllers
from tests.warm_parent import start_node

pytestmark = pytest.mark.cluster

SEED = int(os.environ.get("OTTLA_ORACLE_SEED", "1"))
SECONDS = float(os.environ.get("OTTLA_ORACLE_SECONDS", "120"))
REQUEST_COUNT = None if "OTTLA_ORACLE_SECONDS" in os.environ else 300
CLUSTER_ID = "31KS2JtqQaygF2owBPlqAQ"
READY_S = 60
UNFORESEEN = "ended by an unexpected error"


class Controllers:
    """Three controllers, each a process with a log file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ids = [NodeId(101), NodeId(102), NodeId(103)]
        self.ports = dict(zip(ids, free_ports(3), strict=True))
        self.processes: dict[NodeId, subprocess.Popen[bytes]] = {}

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports.values()]

    def log_of(self, node_id: NodeId) -> str:
        return (self.directory / f"{node_id}.log").read_text(errors="replace")

    def deaths(self) -> list[str]:
        running = {str(node_id): process for node_id, process in self.processes.items()}
        return deaths_among(running, lambda name: self.directory / f"{name}.log")

    def unforeseen(self) -> list[str]:
        return [
            f"{node_id}: {line}"
            for node_id in self.ports
            for line in self.log_of(node_id).splitlines()
            if UNFORESEEN in line
        ]

    async def format(self) -> None:
        voters = VoterSet(
            tuple(
                Voter(
                    id=node_id,
                    directory_id=RealRng().uuid(),
                    endpoints=(VoterEndpoint(CONTROLLER_LISTENER, "127.0.0.1", port),),
                )
                for node_id, port in self.ports.items()
            )
        )
        for voter in voters:
            path = str(self.directory / str(voter.id))
            await format_directories(
                RealDisk(),
                {path: voter.directory_id},
                cluster_id=CLUSTER_ID,
                node_id=voter.id,
                metadata_log_dir=path,
                initial_voters=voters,
            )

    def start(self) -> None:
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in self.ports.items())
        nodes = []
        for node_id, port in self.ports.items():
            config = self.directory / f"{node_id}.properties"
            config.write_text(
                f"node.id={node_id}\nlisteners=CONTROLLER://127.0.0.1:{port}\n"
                f"metadata.log.dir={self.directory / str(node_id)}\n"
                f"controller.quorum.voters={voters}\nbroker.session.timeout.ms=600000\n"
            )
            with (self.directory / f"{node_id}.log").open("ab") as log:
                nodes.append(start_node("controller", config, output=log))
            self.processes[node_id] = nodes[-1].process
        wait_until_ready(nodes, READY_S)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextmanager
def running(directory: Path) -> Iterator[Controllers]:
    controllers = Controllers(directory)
    trio.run(controllers.format)
    try:
        controllers.start()
        yield controllers
    finally:
        controllers.stop()


def test_no_grpc_request_ends_a_controller_or_keeps_it_from_serving(tmp_path: Path) -> None:
    with running(tmp_path) as controllers:
        addresses, deaths = controllers.addresses, controllers.deaths
        report = trio.run(
            partial(
                hunt_controllers,
                addresses,
                seed=SEED,
                seconds=SECONDS,
                deaths=deaths,
                request_count=REQUEST_COUNT,
            )
        )
        print(report)
        assert not report.violations, report
        assert not controllers.unforeseen()
    assert report.outcomes["answered"] > 0
    assert report.neighbour_answers > 0
