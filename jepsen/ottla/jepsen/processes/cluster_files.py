"""Writes the files of a new cluster: each node's settings, and the formatted directories of its
controllers.

Settings are Kafka's. A setting that neither this module nor the caller sets has its default.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ottla.jepsen.processes.network import NodeEndpoint
from ottla.metadata.records import Record
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_address
from ottla.node.clock_driver import RealRng
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.disk.real_disk_driver import RealDisk

BROKER_LISTENER = "PLAINTEXT"
NOT_SECURE: Mapping[str, str] = MappingProxyType({})

SETTINGS = {
    # A fault lasts about 10 s: a dead broker must be detected well within that time.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
    # A node that starts during faults may find no controller for over a minute. With a shorter
    # timeout it would end.
    "initial.broker.registration.timeout.ms": "300000",
    # The default of 50 partitions costs six processes on a small machine too much, and shows
    # nothing more.
    "offsets.topic.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
    # Otherwise a run's records are all in one segment of each log, and no segment rolls during a
    # fault.
    "log.roll.ms": "10000",
    # Compacted topics are compacted many times in a run.
    "log.cleaner.backoff.ms": "3000",
    # By default the partitions of a dead member are reassigned only after 45 s.
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Node settings of every cluster of a run, unless the caller overrides them."""

FLUSH_SETTINGS = {"log.flush.interval.messages": "1"}
"""Settings with which brokers acknowledge only flushed records, so that all brokers may lose power
at once."""


def settings_of(brokers: int, *, flush: bool, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that all nodes of a cluster share. `extra` overrides the defaults of this
    module."""
    replicas = min(3, brokers)
    min_insync = 2 if replicas == 3 else 1
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(min_insync),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min_insync),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(min_insync),
        **SETTINGS,
        **(FLUSH_SETTINGS if flush else {}),
        **extra,
    }


def write_properties(
    path: Path,
    *,
    role: str,
    id_: int,
    endpoint: NodeEndpoint,
    data: Path,
    voters: Mapping[int, NodeEndpoint],
    settings: Mapping[str, str],
    security: Mapping[str, str] = NOT_SECURE,
) -> None:
    """Write one node's .properties file, readable by its owner only."""
    own = {
        "process.roles": role,
        "node.id": str(id_),
        "controller.quorum.voters": ",".join(
            f"{voter}@{place.advertised}" for voter, place in voters.items()
        ),
    }
    if role == "controller":
        own["listeners"] = f"{CONTROLLER_LISTENER}://{endpoint.binds}"
        own["metadata.log.dir"] = str(data)
    else:
        own["listeners"] = f"{BROKER_LISTENER}://{endpoint.binds}"
        own["advertised.listeners"] = f"{BROKER_LISTENER}://{endpoint.advertised}"
        own["log.dirs"] = str(data)
    lines = [f"{key}={value}\n" for key, value in {**own, **security, **settings}.items()]
    path.touch(mode=0o600)
    path.write_text("".join(lines))


async def format_controllers(
    controllers: Iterable[tuple[int, NodeEndpoint, Path]], first_records: Sequence[Record] = ()
) -> str:
    """Format the metadata directories of a new quorum from (id, endpoint, directory) of each
    controller. Returns the cluster id."""
    rng = RealRng()
    cluster_id = uuid_to_text(rng.uuid())
    voters, directories = [], []
    for id_, endpoint, data in controllers:
        host, port = parse_address(endpoint.advertised)
        listener = VoterEndpoint(CONTROLLER_LISTENER, host, port)
        voters.append(Voter(id=NodeId(id_), directory_id=rng.uuid(), endpoints=(listener,)))
        directories.append(str(data))
    async with RealDisk() as disk:
        for voter, directory in zip(voters, directories, strict=True):
            assert voter.directory_id is not None
            await format_directories(
                disk,
                {directory: voter.directory_id},
                cluster_id=cluster_id,
                node_id=voter.id,
                metadata_log_dir=directory,
                initial_voters=VoterSet(tuple(voters)),
                first_records=first_records,
            )
    return cluster_id
