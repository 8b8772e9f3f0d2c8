"""`ottla quorum replace`: replaces a voter by another controller, or by the same controller with a
new directory.

The steps are ordinary changes of the voters, one at a time. The voter set never loses its majority:
another controller is added before the old one is removed. If a directory was lost, its voter is
removed first, because a voter set contains each id only once. The command may be repeated after any
failure, and then does only the remaining steps.
"""

import argparse

from ottla.cli.cluster.voter_text import voter_of
from ottla.cli.cluster.voters.controller_registrations import unregister_controller
from ottla.cli.cluster.voters.voter_requests import (
    PLANNED,
    TIMEOUT,
    change_voters,
    check_cluster,
    described_quorum,
    has_voter,
)
from ottla.cli.common import print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import Identifier
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.facts.survey_driver import SurveyedQuorum, SurveyedReplica
from ottla.insight.rules.health import SILENT_AFTER_MS
from ottla.insight.rules.voter_changes import check_majority_without, voter_in, voter_to_remove
from ottla.model.errors import ConfigError, CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_address
from ottla.node.identity import CONTROLLER_LISTENER
from ottla.raft.voters import Voter, VoterEndpoint
from ottla.storage.directories.meta_properties import uuid_from_text, uuid_to_text


async def replace(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum replace`: replace a voter of the controller quorum. Returns the exit code."""
    quorum = await described_quorum(admin)
    old_id = NodeId(arguments.id)
    new = _new_voter(quorum, arguments)
    gone = _gone_voter(quorum, old_id, new)
    is_added = any(
        (one.id, one.directory_id) == (new.id, uuid_to_text(new.directory_id))
        for one in quorum.voters
    )
    if gone is None and not is_added and new.id != old_id:
        voter_to_remove(quorum, old_id, None)  # refuses it: a mistyped id would only add a voter
    is_first_removed = gone is not None and new.id == old_id
    if is_first_removed:
        assert gone is not None
        voter_to_remove(quorum, old_id, gone.directory_id)
        check_majority_without(quorum, gone)
    endpoint = new.endpoints[0]
    addition = (
        new.id,
        Identifier(uuid_to_text(new.directory_id)),
        f"{endpoint.host}:{endpoint.port}",
        "add",
    )
    steps: list[tuple[object, ...]] = [] if is_added else [addition]
    if gone is not None:
        removal = (gone.id, Identifier(gone.directory_id), gone.address or None, "remove")
        steps.insert(0 if is_first_removed else len(steps), removal)
    if not steps:
        _report(arguments, new, f"controller {new.id} is a voter already; nothing is left to do")
        return 0
    if not is_added:
        await check_cluster(quorum, new)
    if not arguments.yes:
        show(arguments, PLANNED, steps)
    if not await confirm_in_loop(arguments, f"replace voter {old_id}?"):
        return 0
    if is_first_removed:
        assert gone is not None
        await _remove(admin, gone, arguments.timeout)
    if not is_added:
        await _add(admin, new, arguments.timeout)
    if gone is not None and not is_first_removed:
        check_majority_without(await described_quorum(admin), gone)
        await _remove(admin, gone, arguments.timeout)
    if arguments.unregister and new.id != old_id:
        await unregister_controller(admin, old_id, arguments.timeout)
    _report(arguments, new, f"controller {new.id} is a voter now, in place of {_old_name(gone)}")
    return 0


def _old_name(gone: SurveyedReplica | None) -> str:
    if gone is None:
        return "one that was removed before"
    return f"controller {gone.id} with directory {gone.directory_id}"


async def _add(admin: Admin, new: Voter, timeout_s: float) -> None:
    endpoint = new.endpoints[0]

    async def request() -> None:
        listeners = {endpoint.name: (endpoint.host, endpoint.port)}
        await admin.add_voter(new.id, new.directory_id, listeners)

    await change_voters(admin, request, lambda known: has_voter(known, new), timeout_s, new)
    note(f"ottla quorum: controller {new.id} is added")


async def _remove(admin: Admin, gone: SurveyedReplica, timeout_s: float) -> None:
    key = Voter(id=NodeId(gone.id), directory_id=uuid_from_text(gone.directory_id))

    async def request() -> None:
        await admin.remove_voter(key.id, key.directory_id)

    await change_voters(admin, request, lambda known: not has_voter(known, key), timeout_s)
    note(f"ottla quorum: controller {gone.id} with directory {gone.directory_id} is removed")


def _new_voter(quorum: SurveyedQuorum, arguments: argparse.Namespace) -> Voter:
    """Return the voter to add to the quorum: the controller in the arguments, or the old one with
    its new directory."""
    if arguments.by is not None:
        try:
            return voter_of(arguments.by)
        except (ValueError, CorruptDataError):
            raise ConfigError(
                "--by", f"is {arguments.by!r}; it must be ID@HOST:PORT:DIRECTORY"
            ) from None
    node = NodeId(arguments.id)
    known = voter_in(quorum, node)
    found = [one for one in quorum.observers if one.id == node and _is_fetching(one)]
    if not found and known is not None and _is_fetching(known):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"controller {node} is a voter that works; --by ID@HOST:PORT:DIRECTORY names the "
            "controller that replaces it",
        )
    if len(found) != 1:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"{len(found)} controllers with id {node} and a new directory follow the leader, and "
            "one is needed; format the new directory with 'ottla storage format "
            "--no-initial-controllers', start the controller, and see 'ottla quorum replicas'",
        )
    address = arguments.address or ("" if known is None else known.address)
    try:
        host, port = parse_address(address)
    except ValueError:
        raise ConfigError("--address", f"is {address!r}; give the controller's HOST:PORT") from None
    endpoints = (VoterEndpoint(CONTROLLER_LISTENER, host, port),)
    directory_id = uuid_from_text(found[0].directory_id)
    return Voter(id=node, directory_id=directory_id, endpoints=endpoints)


def _gone_voter(quorum: SurveyedQuorum, old_id: NodeId, new: Voter) -> SurveyedReplica | None:
    """Return the voter to remove from the quorum, or None if it was already removed."""
    old = voter_in(quorum, old_id)
    if old is None or (old_id == new.id and old.directory_id == uuid_to_text(new.directory_id)):
        return None
    return old


def _is_fetching(replica: SurveyedReplica) -> bool:
    ago_ms = replica.last_fetch_ms_ago
    return ago_ms is not None and ago_ms <= SILENT_AFTER_MS


def _report(arguments: argparse.Namespace, new: Voter, said: str) -> None:
    if arguments.format == "json":
        directory = uuid_to_text(new.directory_id)
        print_json({"id": new.id, "directory_id": directory, "replaced": arguments.id})
    else:
        say(said)


REPLACE = admin_verb(
    "replace",
    "replace a voter whose directory is lost, or by another controller",
    replace,
    option("id ID", "node.id of the voter to replace", type=int),
    option(
        "--by ID@HOST:PORT:DIRECTORY",
        "another controller that takes its place (default: the same one with its new directory)",
    ),
    option("--address HOST:PORT", "address of the same controller (default: as before)"),
    option("--unregister", "delete the registration of the old controller, too"),
    CONFIRMATION,
    TIMEOUT,
    description="Another controller is added before the old one is removed. A lost directory is "
    "removed before the new one is added, if the other voters are a majority. The command may be "
    "repeated: it does the steps that are left.",
)
