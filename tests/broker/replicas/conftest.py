"""The fixture of the tests of the replica manager."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.broker.replicas.log_work_driver import LogWork
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_port import PartitionPort
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.metadata.image import EMPTY
from ottla.model.ids import NodeId, TopicIdPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.purgatory import Purgatory
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.manager.log_manager_driver import open_log_manager
from ottla.storage.segments.log_config import LogConfig
from tests.broker.replicas.manager_bench import HandFetchers, ManagerBench, World


@pytest.fixture
async def managed(tmp_path: Path, world: World) -> AsyncIterator[ManagerBench]:
    config = BrokerConfig(
        node_id=NodeId(1),
        log_dirs=(str(tmp_path / "logs"),),
        controller_quorum_voters=(ConfiguredVoter(NodeId(101), "localhost", 9),),
    )
    disk = RealDisk(config.log_dirs)
    rng = world.sessions.rng
    async with open_log_manager(disk, config, world.clock, rng, cluster_id="c" * 22) as logs:
        await logs.recover(lambda partition: LogConfig())
        table = PartitionTable(EMPTY)
        purgatory = Purgatory()
        placed: dict[TopicIdPartition, UUID] = {}
        fetchers = HandFetchers()
        flush_due: list[Partition] = []
        errors = UnexpectedErrors()
        work = LogWork(errors)
        led: list[Partition] = []
        manager = ReplicaManager(
            config,
            table=table,
            logs=logs,
            purgatory=purgatory,
            clock=world.clock,
            fetchers=fetchers,
            work=work,
            on_led=led.append,
            port=PartitionPort(purgatory.wake, flush_due.append, lambda partition: None),
            on_placed=lambda partition, directory_id: placed.update({partition: directory_id}),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.run)
            yield ManagerBench(
                manager, table, logs, purgatory, placed, fetchers, flush_due, work, led
            )
            nursery.cancel_scope.cancel()
        assert not errors.counts
