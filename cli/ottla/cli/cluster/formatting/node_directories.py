"""Derives the directories, voters and first metadata records of a node from its settings and the
options of 'ottla storage format'. This module writes nothing."""

import argparse
from collections.abc import Mapping
from uuid import UUID

from ottla.cli.cluster.add_scram import first_credential
from ottla.cli.cluster.formatting.initial_features import (
    check_voters_may_be_fixed,
    initial_features,
)
from ottla.cli.cluster.server.combined_config import load_combined_config
from ottla.insight.changes.voter_plans import voter_of
from ottla.metadata.records import Record
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import NodeId
from ottla.model.seams import Rng
from ottla.model.settings.broker import BROKERS_PER_HOST, BrokerConfig, load_broker_config
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.model.settings.roles import BOTH, BROKER, CONTROLLER, roles_of
from ottla.model.values import frozen
from ottla.node.identity import endpoints_of
from ottla.raft.voters import Voter, VoterSet
from ottla.storage.directories.meta_properties import uuid_to_text

STANDALONE = "--standalone"
INITIAL_CONTROLLERS = "--initial-controllers"
NO_INITIAL_CONTROLLERS = "--no-initial-controllers"


@frozen(kw_only=True)
class NodeDirectories:
    """The directories of one node that 'ottla storage format' creates or formats, and their initial
    content."""

    node_id: NodeId
    ids: Mapping[str, UUID]
    """New directory ids, one for each directory to format. The directory id of a voter's metadata
    log is also in the voter set."""
    metadata_log_dir: str | None = None
    """Path of a controller's metadata log directory, or None for a broker."""
    voters: VoterSet | None = None
    """Initial voters (controllers that elect the leader) of a new cluster. None for a broker, and
    for a controller that joins an existing cluster."""
    first_records: tuple[Record, ...] = ()


def node_directories(
    texts: Mapping[str, str], arguments: argparse.Namespace, rng: Rng
) -> NodeDirectories:
    """Return the directories to format for the node with these settings. Raises ConfigError if
    options contradict each other or the settings."""
    flags = {
        INITIAL_CONTROLLERS: bool(arguments.initial_controllers),
        STANDALONE: arguments.standalone,
        NO_INITIAL_CONTROLLERS: arguments.no_initial_controllers,
    }
    chosen = [flag for flag, is_set in flags.items() if is_set]
    if len(chosen) > 1:
        raise ConfigError(chosen[1], f"cannot be combined with {chosen[0]}")
    roles = roles_of(texts, CONTROLLER if chosen else BROKER)
    users = [first_credential(text) for text in arguments.add_scram]
    levels = initial_features(arguments.release_version, arguments.feature)
    if roles == {BROKER}:
        if arguments.standalone:
            raise ConfigError(STANDALONE, "is for controllers; this file is of a broker")
        if users:
            raise ConfigError("--add-scram", "is for controllers: they keep the users")
        if texts.get(BROKERS_PER_HOST, "").strip():
            raise ConfigError(
                BROKERS_PER_HOST,
                "is set, and brokers of a host are not formatted: they learn the cluster's id from"
                " the controllers; start them with 'ottla server'",
            )
        return _of_broker(load_broker_config(texts)[0], rng)
    more: tuple[str, ...] = ()
    if roles == BOTH:
        combined = load_combined_config(texts)[0]
        controller, more = combined.controller, combined.log_dirs
    else:
        controller = load_controller_config(texts)[0]
    check_voters_may_be_fixed(
        levels,
        is_static=bool(controller.controller_quorum_voters)
        and not (arguments.standalone or arguments.no_initial_controllers),
    )
    voters = parse_initial_controllers(
        arguments.initial_controllers, controller.dialled_listener.name
    )
    if arguments.standalone or (not chosen and _is_lone_voter(controller)):
        voters = _standalone(controller, rng)
    if voters is None and not arguments.no_initial_controllers:
        raise ConfigError(INITIAL_CONTROLLERS, _voters_to_name(controller, rng))
    if voters is not None and controller.node_id not in voters:
        raise ConfigError(
            INITIAL_CONTROLLERS,
            f"does not name this controller, {controller.node_id}; give every controller the same"
            " list",
        )
    if users and voters is None:
        raise ConfigError("--add-scram", "is for a new cluster; this controller joins one")
    metadata_log_dir = controller.metadata_log_dir
    ids = {path: rng.uuid() for path in dict.fromkeys((metadata_log_dir, *more))}
    for voter in voters or ():
        if voter.id == controller.node_id:
            ids[metadata_log_dir] = voter.directory_id
    return NodeDirectories(
        node_id=controller.node_id,
        ids=ids,
        metadata_log_dir=metadata_log_dir,
        voters=voters,
        first_records=(*levels, *users) if voters is not None else (),
    )


def _of_broker(config: BrokerConfig, rng: Rng) -> NodeDirectories:
    paths = dict.fromkeys((*config.log_dirs, config.metadata_directory))
    return NodeDirectories(node_id=config.node_id, ids={path: rng.uuid() for path in paths})


def _voters_to_name(config: ControllerConfig, rng: Rng) -> str:
    """Return an error message for unknown initial voters. The message names the option to add.

    The setting `controller.quorum.voters` contains the voters, but not the ids of their
    directories. Directory ids are random, so that a newly formatted directory is not mistaken for
    its predecessor.
    """
    if not config.controller_quorum_voters:
        return (
            "is not set; name the first voters of this cluster, or format with --standalone the"
            " only controller, or with --no-initial-controllers one that will be added"
        )
    voters = ",".join(
        f"{voter.id}@{voter.host}:{voter.port}:{uuid_to_text(rng.uuid())}"
        for voter in config.controller_quorum_voters
    )
    return (
        "is not set, and controller.quorum.voters does not have the ids of directories; format each"
        f" of these controllers with the same list, for example: {INITIAL_CONTROLLERS} {voters}"
    )


def _is_lone_voter(config: ControllerConfig) -> bool:
    """Return whether this controller is the only voter in the setting
    `controller.quorum.voters`."""
    return [voter.id for voter in config.controller_quorum_voters] == [config.node_id]


def _standalone(config: ControllerConfig, rng: Rng) -> VoterSet:
    """Return a voter set (the controllers that vote) with this controller only, at the addresses in
    its settings. Raises ConfigError if the settings have no address."""
    endpoints = endpoints_of(config)
    if not endpoints:
        raise ConfigError(
            STANDALONE, "needs the host of this controller in listeners or advertised.listeners"
        )
    voter = Voter(id=config.node_id, directory_id=rng.uuid(), endpoints=endpoints)
    return VoterSet((voter,))


def parse_initial_controllers(text: str | None, listener: str) -> VoterSet | None:
    """Return the voter set in a text `id@host:port:directoryId,…`, or None if `text` is None. The
    addresses are the voters' addresses on the listener named `listener`. Raises ConfigError with
    the valid form."""
    if not text:
        return None
    try:
        return VoterSet(tuple(voter_of(part, listener) for part in text.split(",") if part.strip()))
    except (ValueError, CorruptDataError):
        raise ConfigError(
            INITIAL_CONTROLLERS,
            f"is {text!r}; it must be id@host:port:directoryId, several with commas",
        ) from None
