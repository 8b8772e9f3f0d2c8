"""Formatting of a node's directories, which assigns the node its permanent identity.

Invariant NoAmnesia: a controller with peers never formats an empty directory by itself, because a
voter that has lost its disk could vote twice in an epoch. `meta.properties` is written last, so a
directory counts as unformatted if formatting was interrupted by a crash.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from ottla.metadata.features import check_supported
from ottla.metadata.records import Record
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import ZERO_UUID, NodeId, OffsetAndEpoch
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import CONTROLLER_LISTENER as CONTROLLER_LISTENER
from ottla.model.settings.endpoints import ConfiguredVoter as ConfiguredVoter
from ottla.node.quorum.record_batches import read_records
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

FIRST_RECORDS_FILE = "bootstrap.checkpoint"
"""Name of the file with the first metadata records of a new cluster. Kafka uses the same name."""

BRING_BACK = "bring the old directory back, as a wiped controller may not vote"


async def format_directories(
    disk: Disk,
    directories: Mapping[str, UUID],
    *,
    cluster_id: str,
    node_id: NodeId,
    metadata_log_dir: str | None = None,
    initial_voters: VoterSet | None = None,
    is_joining: bool = False,
    first_records: Sequence[Record] = (),
    wall_ms: int = 0,
) -> None:
    """Format directories of a node. `directories` maps each path to the directory id.

    * `initial_voters`: written in a bootstrap snapshot to the directory of the metadata log.  Every
      controller must be formatted with the same voters.
    * `is_joining`: True for a controller that observes an existing quorum until it is added to the
      voters.  The bootstrap snapshot of such a controller has no voters.
    * `first_records`: metadata records of a new cluster, in addition to the records of its
      features.  The first active controller writes them from its file to the metadata log.

    Raises ConfigError if a directory is already formatted.
    """
    for path in directories:
        if await read_meta_properties(disk, path) is not None:
            raise ConfigError("log.dirs", f"{path} is formatted already")
    is_controller = initial_voters is not None or is_joining
    if is_controller:
        assert metadata_log_dir is not None
        assert metadata_log_dir in directories
        await _write_bootstrap_snapshot(disk, metadata_log_dir, initial_voters, wall_ms)
        await write_initial_vote(disk, metadata_log_dir)
        if first_records:
            await _write_first_records(disk, metadata_log_dir, first_records, wall_ms)
    for path, directory_id in directories.items():
        await disk.makedirs(path)
        properties = MetaProperties(
            cluster_id=cluster_id,
            node_id=node_id,
            directory_id=directory_id,
            has_voter_files=is_controller and path == metadata_log_dir,
        )
        await disk.write_atomically(
            f"{path}/{META_PROPERTIES_FILE}", format_meta_properties(properties)
        )


async def add_first_records(
    disk: Disk, metadata_log_dir: str, records: Sequence[Record], *, wall_ms: int = 0
) -> None:
    """Add metadata records to the first records of a new cluster, in the directory of a controller
    that was formatted and never started. Every voter must get the same records."""
    present = await read_first_records(disk, metadata_log_dir)
    await _write_first_records(disk, metadata_log_dir, (*present, *records), wall_ms)


async def _write_first_records(
    disk: Disk, metadata_log_dir: str, records: Sequence[Record], wall_ms: int
) -> None:
    file = SnapshotFile(id=snapshot.BOOTSTRAP_ID, last_contained_timestamp_ms=wall_ms, voters=None)
    await disk.write_atomically(
        f"{metadata_log_dir}/{FIRST_RECORDS_FILE}", b"".join(file.batches(records))
    )


async def read_first_records(disk: Disk, metadata_log_dir: str) -> tuple[Record, ...]:
    """Return the first metadata records of a new cluster, except for the records of features at the
    levels of every new cluster.

    Returns an empty tuple if the file does not exist. Raises CorruptDataError if the file is
    damaged, and NewerReleaseError if a newer release wrote it.
    """
    try:
        data = await disk.read_file(f"{metadata_log_dir}/{FIRST_RECORDS_FILE}")
    except FileNotFoundError:
        return ()
    records = read_records(bytes(data))
    levels = (one.feature_level for one in records if one.HasField("feature_level"))
    check_supported((one.name, one.level) for one in levels)
    return records


async def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return the identity of the node and its cluster that a directory stores, or None if the
    directory is not formatted."""
    try:
        return parse_meta_properties(await disk.read_file(f"{directory}/{META_PROPERTIES_FILE}"))
    except FileNotFoundError:
        return None


async def prepare_controller_directory(
    disk: Disk, config: ControllerConfig, rng: Rng, *, wall_ms: int
) -> MetaProperties:
    """Return the identity of a controller's directory. If the directory is empty and this
    controller is the only voter, the directory is formatted first.

    Raises ConfigError in these cases:
    - The directory is unformatted and may not be formatted here.
    - The directory belongs to another node, or contains no set of voters.
    - The set of voters has another directory id for this controller.
    """
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
    snapshot_id, voters = await _stored_voters(disk, directory)
    if voters is None and not known.has_voter_files:
        raise ConfigError(
            "metadata.log.dir",
            f"{directory} has lost the snapshot that names the voters; {BRING_BACK}",
        )
    if voters is not None and snapshot_id == snapshot.BOOTSTRAP_ID:
        _check_formatted_for(directory, known, voters)
    return known


def _check_formatted_for(directory: str, known: MetaProperties, voters: VoterSet) -> None:
    """Raise ConfigError if a voter's directory was not formatted for this voter of the quorum.

    Without this check, a quorum cannot distinguish an old vote from a new one. For example, two
    voters that lost their disks could outvote the voter that has the committed records. Snapshots
    written later contain the voters at the time of writing. A controller that is not among these
    voters is an observer.
    """
    voter = voters.get(known.node_id)
    if voter is None:
        raise ConfigError(
            "node.id",
            f"is {known.node_id}, but {directory} was formatted for the controllers"
            f" {', '.join(map(str, voters.ids))}; give this node one of these ids, or format the"
            " directory of a controller that joins them with --no-initial-controllers",
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
            " controller, or --no-initial-controllers on one that joins a cluster; if it was"
            f" formatted before, {BRING_BACK}",
        )
    directory_id = rng.uuid()
    lone = Voter(id=config.node_id, directory_id=directory_id, endpoints=endpoints_of(config))
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
    disk: Disk, metadata_log_dir: str, voters: VoterSet | None, wall_ms: int
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

    If this file is missing later, the voter's directory is damaged.
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
    *,
    is_controller: bool = False,
    endpoints: tuple[VoterEndpoint, ...] = (),
    listener: str = CONTROLLER_LISTENER,
    are_voters_fixed: bool = False,
    joins_automatically: bool = False,
) -> QuorumIdentity:
    """Return the identity of this node in the quorum, with the voters at the node's startup.

    The voters are read from the latest readable snapshot, or else from the settings. A controller
    that was formatted without voters finds the leader with the addresses in the settings, and reads
    the voters from the log. `QuorumIdentity.addresses_of` defines the order of the voters'
    addresses. Controllers with negative ids are bootstrap servers: this node only contacts them.

    With `are_voters_fixed`, the voters cannot change until the level of the metadata allows it.
    `endpoints` are the addresses of this controller, by default the one in `configured`. `listener`
    is the controllers' listener to which this node connects.

    Raises ConfigError if no snapshot and no setting names a controller.
    """
    contacts = tuple(
        Voter(id=one.id, endpoints=(VoterEndpoint(listener, one.host, one.port),))
        for one in configured
    )
    in_settings = tuple(voter for voter in contacts if voter.id >= 0)
    node_id = properties.node_id
    snapshot_id, stored = await _stored_voters(disk, metadata_log_dir)
    voters = stored
    if voters is None and not contacts:
        raise ConfigError("controller.quorum.voters", "is not set; name the controllers")
    if voters is None:
        is_joining = is_controller and snapshot_id is not None
        voters = VoterSet(()) if is_joining else VoterSet(in_settings)
    own = (voter.endpoints for voter in in_settings if voter.id == node_id)
    return QuorumIdentity(
        node_id=node_id,
        directory_id=properties.directory_id or ZERO_UUID,
        cluster_id=properties.cluster_id,
        voters=voters,
        is_controller=is_controller,
        endpoints=(endpoints or next(own, ())) if is_controller else (),
        are_voters_fixed=are_voters_fixed,
        bootstrap=tuple(one for one in contacts if one.id != node_id and one.id not in voters),
        configured=in_settings,
        listener=listener,
        joins_automatically=joins_automatically,
    )


async def _stored_voters(
    disk: Disk, metadata_log_dir: str
) -> tuple[OffsetAndEpoch | None, VoterSet | None]:
    """Return the id of the latest readable metadata snapshot that contains the quorum's voters, and
    these voters.

    If no readable snapshot contains voters, returns the id of the earliest readable snapshot and
    None. If no snapshot is readable, returns (None, None).
    """
    directory = f"{metadata_log_dir}/{METADATA_DIRECTORY}"
    readable: OffsetAndEpoch | None = None
    if not disk.exists(directory):
        return None, None
    names = await disk.listdir(directory)
    found = [one for name in names if (one := snapshot.parse_name(name)) is not None]
    for each in sorted(found, reverse=True):
        data = await disk.read_file(f"{directory}/{snapshot.file_name(each)}")
        with suppress(CorruptDataError):  # A damaged snapshot is removed when the log is opened.
            # The voters are in the first batch, so damage behind it does not matter here.
            voters = snapshot.voters_of(data[: parse_header(data).size_bytes])
            readable = each
            if voters is not None:
                return each, voters
    return readable, None


def endpoints_of(config: ControllerConfig) -> tuple[VoterEndpoint, ...]:
    """Return the endpoints (host and port) of a controller by listener, read from its own settings.
    The result is empty if no host is known, because the listeners, the voters and the advertised
    listeners contain none."""
    return tuple(
        VoterEndpoint(name, host, port) for name, host, port, _ in config.advertised_addresses
    )
