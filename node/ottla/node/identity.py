"""Formatting: what a directory is told once and permanently, and who a replica is therefore.

Invariant NoAmnesia: a controller with peers never formats an empty directory by itself, for a
voter that lost its disk would vote a second time.  `meta.properties` is written last, so that a
crash while formatting leaves an unformatted directory.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY
from ottla.metadata.records import Record
from ottla.metadata.snapshot import records_of
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import ZERO_UUID, NodeId
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ConfiguredVoter as ConfiguredVoter
from ottla.node.quorum_files.checkpoint_file import create_checkpoint
from ottla.node.record_batches import replay
from ottla.node.snapshot_file import SnapshotFile
from ottla.raft import snapshot
from ottla.raft.election_state import QUORUM_STATE_FILE, ElectionState, encode
from ottla.raft.voter_checkpoint import VoterCheckpoint
from ottla.raft.voters import QuorumIdentity, ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.storage.disk_seam import Disk
from ottla.storage.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
    uuid_to_text,
)
from ottla.wire.batch import parse_header

CONTROLLER_LISTENER = "CONTROLLER"

FIRST_RECORDS_FILE = "bootstrap.checkpoint"
"""The records that a new cluster begins with, under Kafka's name."""

BRING_BACK = "bring the old directory back, as a wiped controller may not vote"


async def format_directories(
    disk: Disk,
    directories: Mapping[str, UUID],
    *,
    cluster_id: str,
    node_id: NodeId,
    metadata_log_dir: str | None = None,
    initial_voters: VoterSet | None = None,
    first_records: Sequence[Record] = (),
    wall_ms: int = 0,
) -> None:
    """Give each directory (path to id) its identity; ConfigError where one has one already.

    With `initial_voters` the metadata log's directory gets the bootstrap snapshot that names them;
    the same set must be given on every controller.  `first_records` are what a new cluster begins
    with besides its features; the controller that is active first writes those of its own file.
    """
    for path in directories:
        if await read_meta_properties(disk, path) is not None:
            raise ConfigError("log.dirs", f"{path} is formatted already")
    if initial_voters is not None:
        assert metadata_log_dir is not None
        assert metadata_log_dir in directories
        await _write_bootstrap_snapshot(disk, metadata_log_dir, initial_voters, wall_ms)
        await write_first_vote(disk, metadata_log_dir)
        if first_records:
            file = SnapshotFile(
                id=snapshot.BOOTSTRAP_ID, last_contained_timestamp_ms=wall_ms, voters=None
            )
            await disk.write_atomically(
                f"{metadata_log_dir}/{FIRST_RECORDS_FILE}", b"".join(file.batches(first_records))
            )
    for path, directory_id in directories.items():
        await disk.makedirs(path)
        properties = MetaProperties(
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=directory_id,
            has_voter_files=initial_voters is not None and path == metadata_log_dir,
        )
        await disk.write_atomically(
            f"{path}/{META_PROPERTIES_FILE}", format_meta_properties(properties)
        )


async def read_first_records(disk: Disk, metadata_log_dir: str) -> tuple[Record, ...]:
    """Return what a new cluster is to begin with besides its features.

    Raises CorruptDataError where the file is damaged.
    """
    try:
        data = await disk.read_file(f"{metadata_log_dir}/{FIRST_RECORDS_FILE}")
    except FileNotFoundError:
        return ()
    delta = MetadataDelta(EMPTY)
    replay(delta, bytes(data))
    return tuple(records_of(delta.image))


async def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return a directory's identity, None when it is not formatted."""
    try:
        return parse_meta_properties(await disk.read_file(f"{directory}/{META_PROPERTIES_FILE}"))
    except FileNotFoundError:
        return None


async def prepare_controller_directory(
    disk: Disk, config: ControllerConfig, rng: Rng, *, wall_ms: int
) -> MetaProperties:
    """Return the identity of a controller's directory; a lone voter formats an empty one."""
    directory = config.metadata_log_dir
    await disk.makedirs(directory)
    known = await read_meta_properties(disk, directory)
    if known is None:
        await _format_lone_voter(disk, config, rng, wall_ms)
        known = await read_meta_properties(disk, directory)
        assert known is not None
    if known.node_id != config.node_id:
        raise ConfigError(
            "node.id", f"is {config.node_id}, but {directory} belongs to node {known.node_id}"
        )
    _check_may_vote(directory, known, await _stored_voters(disk, directory))
    return known


def _check_may_vote(directory: str, known: MetaProperties, voters: VoterSet | None) -> None:
    """Refuse a controller whose directory is not the one that was given its vote.

    With nobody to tell an old vote from a new one, two that lost their disks could outvote the one
    that kept what was committed.
    """
    if voters is None and known.has_voter_files:
        return  # formatted with the voters: only the snapshot that names them is gone or damaged
    if voters is None:
        raise ConfigError(
            "metadata.log.dir",
            f"{directory} has lost the snapshot that names the voters; {BRING_BACK}",
        )
    voter = voters.get(known.node_id)
    if voter is None:
        raise ConfigError(
            "node.id",
            f"is {known.node_id}, but {directory} was formatted for the controllers"
            f" {', '.join(map(str, voters.ids))}; give this node one of these ids",
        )
    if known.directory_id is not None and not voter.is_key(
        ReplicaKey(known.node_id, known.directory_id)
    ):
        raise ConfigError(
            "metadata.log.dir",
            f"{directory} has the id {uuid_to_text(known.directory_id)}, but controller"
            f" {voter.id} votes with {uuid_to_text(voter.directory_id)}; {BRING_BACK}",
        )


async def _format_lone_voter(disk: Disk, config: ControllerConfig, rng: Rng, wall_ms: int) -> None:
    directory = config.metadata_log_dir
    voters = config.controller_quorum_voters
    if disk.exists(f"{directory}/{METADATA_DIRECTORY}"):
        raise ConfigError(
            "metadata.log.dir",
            f"{directory} holds a metadata log but no {META_PROPERTIES_FILE}; put that file back",
        )
    if [voter.id for voter in voters] != [config.node_id]:
        raise ConfigError(
            "metadata.log.dir",
            f"{directory} is not formatted, and a controller with peers never formats by itself;"
            " in a new cluster run `ottla storage format --initial-controllers` on every"
            f" controller; if it was formatted before, {BRING_BACK}",
        )
    directory_id = rng.uuid()
    lone = Voter(id=config.node_id, directory_id=directory_id, endpoints=_endpoints(voters[0]))
    await format_directories(
        disk,
        {directory: directory_id},
        cluster_id=uuid_to_text(rng.uuid()),
        node_id=config.node_id,
        metadata_log_dir=directory,
        initial_voters=VoterSet((lone,)),
        wall_ms=wall_ms,
    )


async def _write_bootstrap_snapshot(
    disk: Disk, metadata_log_dir: str, voters: VoterSet, wall_ms: int
) -> None:
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    await disk.makedirs(directory)
    file = SnapshotFile(
        id=snapshot.BOOTSTRAP_ID,
        last_contained_timestamp_ms=wall_ms,
        voters=voters,
    )
    await disk.write_atomically(
        f"{directory}/{snapshot.file_name(snapshot.BOOTSTRAP_ID)}", b"".join(file.batches(()))
    )


async def write_first_vote(disk: Disk, metadata_log_dir: str) -> None:
    """Write what a voter that has never voted remembers; a directory without it is damaged."""
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    (await create_checkpoint(disk, directory, VoterCheckpoint())).close()
    await disk.write_atomically(
        f"{directory}/{QUORUM_STATE_FILE}", encode(ElectionState(), is_checkpointed=True)
    )


async def quorum_identity(
    disk: Disk,
    metadata_log_dir: str,
    properties: MetaProperties,
    configured: Sequence[ConfiguredVoter],
) -> QuorumIdentity:
    """Return who this replica is, and whom it decides with.

    Who votes is what the latest snapshot says that can, else the settings; where a voter listens is
    what the settings say, if they name it, for machines move.
    """
    addresses = {voter.id: _endpoints(voter) for voter in configured}
    stored = await _stored_voters(disk, metadata_log_dir)
    if stored is None:
        voters = tuple(Voter(id=id_, endpoints=found) for id_, found in addresses.items())
    else:
        voters = tuple(
            Voter(
                id=voter.id,
                directory_id=voter.directory_id,
                endpoints=addresses.get(voter.id, voter.endpoints),
            )
            for voter in stored
        )
    if not voters:
        raise ConfigError("controller.quorum.voters", "is not set; name the controllers")
    return QuorumIdentity(
        node_id=properties.node_id,
        directory_id=properties.directory_id or ZERO_UUID,
        cluster_id=properties.cluster_id,
        voters=VoterSet(voters),
    )


async def _stored_voters(disk: Disk, metadata_log_dir: str) -> VoterSet | None:
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    if not disk.exists(directory):
        return None
    names = await disk.listdir(directory)
    found = [one for name in names if (one := snapshot.parse_name(name)) is not None]
    for each in sorted(found, reverse=True):
        data = await disk.read_file(f"{directory}/{snapshot.file_name(each)}")
        with suppress(CorruptDataError):  # it is removed when the log is opened
            # They stand in the first batch, so damage behind it does not hide them.
            voters = snapshot.voters_of(data[: parse_header(data).size_bytes])
            if voters is not None:
                return voters
    return None


def _endpoints(voter: ConfiguredVoter) -> tuple[VoterEndpoint, ...]:
    return (VoterEndpoint(CONTROLLER_LISTENER, voter.host, voter.port),)
