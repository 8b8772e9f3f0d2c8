"""`ottla storage format|random-uuid|accept-loss`: formats directories, prints a new id, and lets a
controller vote again that has lost metadata."""

import argparse
from pathlib import Path
from uuid import UUID

from ottla.cli.cluster.add_scram import first_credential
from ottla.cli.cluster.voter_text import voter_of
from ottla.cli.common import run_async
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.tables import Identifier, print_table
from ottla.cli.terminal import say
from ottla.cli.verbs import verb
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import NodeId
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.identity import endpoints_of, format_directories
from ottla.node.local.private_files_driver import restrict_umask
from ottla.node.properties import parse_properties
from ottla.node.quorum_files.accepted_loss import accept_loss
from ottla.node.quorum_files.voter_opening import damages_of
from ottla.raft.transitions import Standing
from ottla.raft.voters import Voter, VoterSet
from ottla.storage.directories.directory_lock_driver import lock_directory, unlock_directory
from ottla.storage.directories.meta_properties import uuid_from_text, uuid_to_text
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
    texts = _read_properties(arguments)
    chosen = [flag for flag, is_set in _quorum_flags(arguments).items() if is_set]
    if len(chosen) > 1:
        raise ConfigError(chosen[1], f"cannot be combined with {chosen[0]}")
    roles = texts.get("process.roles", "controller" if chosen else "broker")
    voters = parse_initial_controllers(arguments.initial_controllers)
    first_records = [first_credential(text) for text in arguments.add_scram]
    metadata_log_dir: str | None = None
    directories: tuple[str, ...]
    if roles == "controller":
        controller = load_controller_config(texts)[0]
        node_id, directories = controller.node_id, (controller.metadata_log_dir,)
        metadata_log_dir = controller.metadata_log_dir
        if arguments.standalone:
            voters = _standalone(controller)
        if voters is None and not arguments.no_initial_controllers:
            raise ConfigError(
                "--initial-controllers",
                "is not set; name the first voters of this cluster, or format with --standalone the"
                " only controller, or with --no-initial-controllers one that will be added",
            )
        if first_records and voters is None:
            raise ConfigError("--add-scram", "is for a new cluster; this controller joins one")
        if voters is not None and node_id not in voters:
            raise ConfigError(
                "--initial-controllers",
                f"does not name this controller, {node_id}; give every controller the same list",
            )
    elif first_records:
        raise ConfigError("--add-scram", "is for controllers: they keep the users")
    else:
        broker = load_broker_config(texts)[0]
        node_id = broker.node_id
        directories = tuple(dict.fromkeys((*broker.log_dirs, broker.metadata_directory)))
    ids = {directory: _directory_id(node_id, voters) for directory in directories}
    if arguments.cluster_id is None:
        raise ConfigError("--cluster-id", "is not set; make one with 'ottla storage random-uuid'")
    try:
        uuid_from_text(arguments.cluster_id)
    except CorruptDataError as error:
        raise ConfigError("--cluster-id", str(error)) from None

    restrict_umask()

    async def body() -> int:
        async with RealDisk() as disk:
            await format_directories(
                disk,
                ids,
                cluster_id=arguments.cluster_id,
                node_id=node_id,
                metadata_log_dir=metadata_log_dir,
                initial_voters=voters,
                is_joining=roles == "controller" and voters is None,
                first_records=first_records,
            )
        return 0

    run_async(body)
    print_table(
        ("DIRECTORY", "ID"), [(name, Identifier(uuid_to_text(id_))) for name, id_ in ids.items()]
    )
    return 0


def _quorum_flags(arguments: argparse.Namespace) -> dict[str, bool]:
    return {
        "--initial-controllers": bool(arguments.initial_controllers),
        "--standalone": arguments.standalone,
        "--no-initial-controllers": arguments.no_initial_controllers,
    }


def _standalone(config: ControllerConfig) -> VoterSet:
    """Return a voter set with this controller only, at the addresses in its settings. Raises
    ConfigError if the settings have no address."""
    endpoints = endpoints_of(config)
    if not endpoints:
        raise ConfigError(
            "--standalone", "needs the host of this controller in listeners or advertised.listeners"
        )
    voter = Voter(id=config.node_id, directory_id=RealRng().uuid(), endpoints=endpoints)
    return VoterSet((voter,))


def parse_initial_controllers(text: str | None) -> VoterSet | None:
    """Return the voters in a text of the form `id@host:port:directoryId,…`, or None for an empty
    text.  Raises ConfigError, which names this form."""
    if not text:
        return None
    try:
        return VoterSet(tuple(voter_of(part) for part in text.split(",") if part.strip()))
    except (ValueError, CorruptDataError):
        raise ConfigError(
            "--initial-controllers",
            f"is {text!r}; it must be id@host:port:directoryId, several with commas",
        ) from None


def _directory_id(node_id: NodeId, voters: VoterSet | None) -> UUID:
    """Return the directory id of this node in the list of voters, or a new one."""
    for voter in voters or ():
        if voter.id == node_id:
            return voter.directory_id
    return RealRng().uuid()


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
