"""Formatting of directories, which gives a node its permanent identity.

Invariant NoAmnesia: a controller with peers never formats an empty directory by itself, because a
voter that has lost its disk could vote twice in an epoch.  `meta.properties` is written last, so a
directory counts as unformatted if formatting was interrupted by a crash.
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
from ottla.node.quorum.record_batches import replay
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.node.quorum_files.checkpoint_file import create_checkpoint
from ottla.raft import snapshot
from ottla.raft.election_state import QUORUM_STATE_FILE, ElectionState, encode
from ottla.raft.voter_checkpoint import VoterCheckpoint
from ottla.raft.voters import QuorumIdentity, ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.storage.directories.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
    uuid_to_text,
)
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_seam import Disk
from ottla.wire.batch import parse_header

CONTROLLER_LISTENER = "CONTROLLER"

FIRST_RECORDS_FILE = "bootstrap.checkpoint"
"""File with the first metadata records of a new cluster, under Kafka's name."""

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
    """Format directories, given as a mapping from path to directory id.

    Raises ConfigError if a directory is already formatted.  If `initial_voters` is given, a
    bootstrap snapshot with these voters is written to the directory of the metadata log; every
    controller must be formatted with the same voters.  `first_records` are metadata records of a
    new cluster, in addition to its features.  The first active controller of the cluster writes the
    records of its own file to the metadata log.
    """
    for path in directories:
        if await read_meta_properties(disk, path) is not None:
            raise ConfigError("log.dirs", f"{path} is formatted already")
    if initial_voters is not None:
        assert metadata_log_dir is not None
        assert metadata_log_dir in directories
        await _write_bootstrap_snapshot(disk, metadata_log_dir, initial_voters, wall_ms)
        await write_initial_vote(disk, metadata_log_dir)
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
    """Return the first metadata records of a new cluster, except for the records of its features.

    Raises CorruptDataError if the file is damaged.
    """
    try:
        data = await disk.read_file(f"{metadata_log_dir}/{FIRST_RECORDS_FILE}")
    except FileNotFoundError:
        return ()
    delta = MetadataDelta(EMPTY)
    replay(delta, bytes(data))
    return tuple(records_of(delta.image))


async def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return the identity of a directory, or None if the directory is not formatted."""
    try:
        return parse_meta_properties(await disk.read_file(f"{directory}/{META_PROPERTIES_FILE}"))
    except FileNotFoundError:
        return None


async def prepare_controller_directory(
    disk: Disk, config: ControllerConfig, rng: Rng, *, wall_ms: int
) -> MetaProperties:
    """Return the identity of a controller's directory.  If the directory is empty and this
    controller is the only voter, the directory is formatted first."""
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
    """Raise ConfigError if a voter's directory is not the one that was formatted for it.

    Without this check, a quorum cannot distinguish an old vote from a new one.  For example, two
    voters that lost their disks could outvote the voter that has the committed records.
    """
    if voters is None and known.has_voter_files:
        return  # formatted as a voter: only the snapshot with the voters is lost or damaged
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


async def write_initial_vote(disk: Disk, metadata_log_dir: str) -> None:
    """Write the initial quorum state of a voter that has never voted.

    If a voter's directory lacks this file later, the directory is damaged.
    """
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
    """Return the identity of this node in the quorum, and the voters.

    The voters are read from the latest readable snapshot, or else from the settings.  If the
    settings list a voter, its addresses are those in the settings, because machines may move.
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
        with suppress(CorruptDataError):  # A damaged snapshot is removed when the log is opened.
            # The voters are in the first batch, so damage behind it does not matter here.
            voters = snapshot.voters_of(data[: parse_header(data).size_bytes])
            if voters is not None:
                return voters
    return None


def _endpoints(voter: ConfiguredVoter) -> tuple[VoterEndpoint, ...]:
    return (VoterEndpoint(CONTROLLER_LISTENER, voter.host, voter.port),)
