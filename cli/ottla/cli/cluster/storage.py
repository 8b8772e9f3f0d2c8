"""`ottla storage format|random-uuid|accept-loss`: formats directories, prints a new id, and allows
a controller to vote again after it has lost metadata."""

import argparse
from pathlib import Path
from uuid import UUID

from ottla.cli.cluster.formatting.node_directories import NodeDirectories, node_directories
from ottla.cli.common import run_async
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.tables import Identifier, print_table
from ottla.cli.terminal import say
from ottla.cli.verbs import verb
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.settings.controller import load_controller_config
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.identity import format_directories, read_meta_properties
from ottla.node.local.private_files_driver import restrict_umask
from ottla.node.properties import parse_properties
from ottla.node.quorum_files.accepted_loss import accept_loss
from ottla.node.quorum_files.voter_opening import damages_of
from ottla.raft.transitions import Standing
from ottla.storage.directories.directory_lock_driver import lock_directory, unlock_directory
from ottla.storage.directories.meta_properties import uuid_from_text, uuid_to_text
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk


def _random_uuid(arguments: argparse.Namespace) -> int:
    say(uuid_to_text(RealRng().uuid()))
    return 0


def _read_properties(arguments: argparse.Namespace) -> dict[str, str]:
    path = Path(arguments.config)
    try:
        return parse_properties(path.read_text())
    except FileNotFoundError:
        raise ConfigError("--config", f"{path} is not there") from None


def _accept_loss(arguments: argparse.Namespace) -> int:
    config = load_controller_config(_read_properties(arguments))[0]
    directory = config.metadata_log_dir

    async def body() -> int:
        async with RealDisk([directory]) as disk:
            lock = lock_directory(disk, directory, setting="metadata.log.dir")
            try:
                verdict = await accept_loss(disk, config, RealClock(), is_decided=False)
                checkpoint = verdict.checkpoint
                if checkpoint.election.standing is Standing.FULL:
                    say(
                        f"controller {config.node_id} has all that it acknowledged; nothing is lost"
                    )
                    return 0
                say(f"controller {config.node_id}: {damages_of(verdict)}")
                say(f"it has the metadata up to offset {checkpoint.flushed.offset}")
                if await confirm_in_loop(
                    arguments, "accept that what is missing is lost for good?"
                ):
                    await accept_loss(disk, config, RealClock(), is_decided=True)
                    say("it votes again from its next start on; what is missing is lost for good")
                return 0
            finally:
                unlock_directory(lock)

    return run_async(body)


def _format(arguments: argparse.Namespace) -> int:
    wanted = node_directories(_read_properties(arguments), arguments, RealRng())
    if arguments.cluster_id is None:
        raise ConfigError("--cluster-id", "is not set; make one with 'ottla storage random-uuid'")
    try:
        uuid_from_text(arguments.cluster_id)
    except CorruptDataError as error:
        raise ConfigError("--cluster-id", str(error)) from None

    restrict_umask()
    formatted: dict[str, UUID] = {}

    async def body() -> int:
        async with RealDisk() as disk:
            ids = await _unformatted(disk, wanted, arguments)
            is_controller = wanted.metadata_log_dir in ids
            await format_directories(
                disk,
                ids,
                cluster_id=arguments.cluster_id,
                node_id=wanted.node_id,
                metadata_log_dir=wanted.metadata_log_dir,
                initial_voters=wanted.voters if is_controller else None,
                is_joining=is_controller and wanted.voters is None,
                first_records=wanted.first_records,
            )
            formatted.update(ids)
        return 0

    run_async(body)
    if not formatted:
        say("all directories are formatted already")
        return 0
    rows = [(name, Identifier(uuid_to_text(id_))) for name, id_ in formatted.items()]
    print_table(("DIRECTORY", "ID"), rows)
    return 0


async def _unformatted(
    disk: Disk, wanted: NodeDirectories, arguments: argparse.Namespace
) -> dict[str, UUID]:
    """Return the new directory ids of a node's directories that are not formatted yet, by path.

    Raises ConfigError if a directory is already formatted and the options do not allow skipping it,
    or if it belongs to another cluster or node.
    """
    ids: dict[str, UUID] = {}
    for path, directory_id in wanted.ids.items():
        known = await read_meta_properties(disk, path)
        if known is None:
            ids[path] = directory_id
        elif not arguments.ignore_formatted:
            raise ConfigError(
                "log.dirs",
                f"{path} is formatted already; --ignore-formatted skips such directories",
            )
        elif known.cluster_id != arguments.cluster_id:
            raise ConfigError(
                "--cluster-id",
                f"is {arguments.cluster_id}, but {path} belongs to cluster {known.cluster_id}",
            )
        elif known.node_id != wanted.node_id:
            raise ConfigError(
                "node.id", f"is {wanted.node_id}, but {path} belongs to node {known.node_id}"
            )
    return ids


VERBS = (
    verb(
        "format",
        "format the directories of one node",
        _format,
        option("--config -c CONFIG", ".properties file of the node", required=True),
        option(
            "--cluster-id -t CLUSTER_ID",
            "id of the cluster, the same on every node; see 'ottla storage random-uuid'",
        ),
        option(
            "--initial-controllers -I ID@HOST:PORT:DIRECTORY_ID,…",
            "first voters, the same list on every controller",
        ),
        option("--standalone -s", "this controller is the only first voter"),
        option(
            "--no-initial-controllers -N",
            "this controller joins a cluster; `ottla quorum add` makes it a voter",
        ),
        option(
            "--ignore-formatted -g",
            "skip directories that are formatted already, if they belong to this node and cluster",
        ),
        option(
            "--release-version -r RELEASE",
            "release of Kafka whose features the new cluster has, such as 4.3 (default: the latest "
            "supported)",
        ),
        option(
            "--feature -f NAME=LEVEL ...",
            "level of one feature of the new cluster; may be repeated",
        ),
        option(
            "--add-scram -S MECHANISM=[name=…,password=…] ...",
            "user of the new cluster, the same on every controller; also iterations=, salt= and "
            "saltedpassword= (base64); may be repeated",
        ),
    ),
    verb(
        "random-uuid",
        "print an id for a new cluster or directory",
        _random_uuid,
    ),
    verb(
        "accept-loss",
        "have a controller vote again that lost metadata",
        _accept_loss,
        option("--config -c CONFIG", ".properties file of the controller", required=True),
        CONFIRMATION,
        description="A controller whose metadata log or vote was lost or damaged neither votes "
        "nor leads before it has caught up. Where no leader can be elected any more, this command "
        "has the stopped controller vote with what it has: metadata that only it had are lost "
        "for good. Choose the controller with the highest end offset.",
    ),
)
