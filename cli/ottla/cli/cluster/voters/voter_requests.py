"""`ottla quorum add|remove|replicas`: shows the voters of the quorum, and changes them (KIP-853).

A change may take effect although its response is lost or is REQUEST_TIMED_OUT. After such a
response, the command looks up the change by DescribeQuorum. It requests the change again only if
the quorum does not have it.
"""

import argparse
from collections.abc import Awaitable, Callable

import trio

from ottla.cli.cluster.voter_text import voter_of
from ottla.cli.cluster.voters.controller_registrations import unregister_controller
from ottla.cli.common import AT_CONTROLLERS, counted, print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import Identifier, Milliseconds, print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cluster import QuorumDescription
from ottla.client.network.active_controller import cluster_id_at
from ottla.client.network.connection import ConnectionLostError
from ottla.insight.facts.survey_driver import SurveyedQuorum, SurveyedReplica, quorum_of
from ottla.insight.rules.voter_changes import check_majority_without, voter_in, voter_to_remove
from ottla.model.errors import ConfigError, CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_address
from ottla.raft.voters import Voter
from ottla.storage.directories.meta_properties import uuid_from_text, uuid_to_text

UNKNOWN_STATE = 2
ASK_AGAIN_S = 0.5
PROGRESS_S = 2.0
"""Minimum interval in seconds between two printed notes about a controller that is catching up with
the leader."""

TIMEOUT_S = 60.0
UNDECIDED = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        # A broker answers so if the leader went away with the request.
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Error codes after which the requested change of the voters may still take effect. After some of
them, the command may also request the change again."""

MADE_BEFORE = frozenset((ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND))
"""Error codes that may mean that the requested change of the voters was already made by an earlier
copy of the request, sent by this command or by a broker."""

PLANNED = ("ID", "DIRECTORY", "ADDRESS", "CHANGE")
REPLICA_FIELDS = ("id", "directory_id", "role", "lag", "last_caught_up_ms_ago", "address")
REPLICAS = ("ID", "DIRECTORY", "ROLE", "LAG", "CAUGHT-UP-AGO", "ADDRESS")


async def add(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum add`: add a controller to the voters of the quorum. Returns the exit code."""
    try:
        new = voter_of(arguments.controller)
    except (ValueError, CorruptDataError):
        raise ConfigError(
            "ID@HOST:PORT:DIRECTORY",
            f"is {arguments.controller!r}; 'ottla quorum replicas' shows id and directory of a "
            "controller that follows the leader",
        ) from None
    quorum = await described_quorum(admin)
    found = voter_in(quorum, new.id)
    directory = uuid_to_text(new.directory_id)
    if found is not None and found.directory_id != directory:
        raise RefusedError(
            ErrorCode.DUPLICATE_VOTER,
            f"controller {new.id} is a voter with directory {found.directory_id}; if that "
            f"directory is lost, 'ottla quorum remove {new.id}' comes first",
        )
    if found is not None:
        _report(arguments, new.id, directory, f"controller {new.id} is a voter already", added=True)
        return 0
    endpoint = new.endpoints[0]
    await check_cluster(quorum, new)
    if not arguments.yes:
        address = f"{endpoint.host}:{endpoint.port}"
        show(arguments, PLANNED, [(new.id, Identifier(directory), address, "add")])
    if not await confirm_in_loop(arguments, f"add controller {new.id} to the voters?"):
        return 0

    async def request() -> None:
        listeners = {endpoint.name: (endpoint.host, endpoint.port)}
        await admin.add_voter(new.id, new.directory_id, listeners)

    await change_voters(admin, request, lambda known: has_voter(known, new), arguments.timeout, new)
    _report(arguments, new.id, directory, f"controller {new.id} is a voter now", added=True)
    return 0


async def check_cluster(quorum: SurveyedQuorum, new: Voter) -> None:
    """Raise RefusedError if the new voter's address is that of a controller of another cluster than
    the leader's. The leader could only report that the voter has not caught up.

    Nothing is checked if one of the two does not respond to this command.
    """
    endpoint = new.endpoints[0]
    leader = next((one for one in quorum.voters if one.id == quorum.leader_id), None)
    other = await cluster_id_at((endpoint.host, endpoint.port))
    if other is None or leader is None or not leader.address:
        return
    own = await cluster_id_at(parse_address(leader.address))
    if own not in (None, other):
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the controller at {endpoint.host}:{endpoint.port} belongs to cluster {other}, and "
            f"this is cluster {own}",
        )


async def remove(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum remove`: remove a controller from the voters of the quorum. Returns the exit
    code."""
    quorum = await described_quorum(admin)
    gone = voter_to_remove(quorum, NodeId(arguments.id), arguments.directory)
    check_majority_without(quorum, gone)
    if not arguments.yes:
        show(
            arguments,
            PLANNED,
            [(gone.id, Identifier(gone.directory_id), gone.address or None, "remove")],
        )
    if not await confirm_in_loop(arguments, f"remove controller {gone.id} from the voters?"):
        return 0
    key = Voter(id=NodeId(gone.id), directory_id=uuid_from_text(gone.directory_id))

    async def request() -> None:
        await admin.remove_voter(key.id, key.directory_id)

    await change_voters(admin, request, lambda known: not has_voter(known, key), arguments.timeout)
    said = f"controller {gone.id} is no voter any longer; stop it, or it goes on as an observer"
    if arguments.unregister:
        await unregister_controller(admin, gone.id, arguments.timeout)
        said = (
            f"controller {gone.id} is neither a voter nor registered any longer; if it still runs, "
            "it registers again"
        )
    _report(arguments, gone.id, gone.directory_id, said, removed=True)
    return 0


async def replicas(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum replicas`: print every voter and observer of the controller quorum. Returns
    exit code 2 if there is no leader."""
    quorum = await quorum_of(admin)
    if quorum.failure:
        note(f"ottla quorum: the controllers do not answer ({quorum.failure})")
        return UNKNOWN_STATE
    rows = [_row(one, "leader" if one.id == quorum.leader_id else "voter") for one in quorum.voters]
    rows += [_row(one, "observer") for one in quorum.observers]
    if arguments.format == "json":
        print_json([dict(zip(REPLICA_FIELDS, row, strict=True)) for row in rows])
    else:
        print_table(REPLICAS, rows)
    return 0


def _row(replica: SurveyedReplica, role: str) -> tuple[object, ...]:
    ago_ms = replica.last_caught_up_ms_ago
    return (
        replica.id,
        Identifier(replica.directory_id) if replica.directory_id else None,
        role,
        replica.lag,
        None if ago_ms is None else Milliseconds(ago_ms),
        replica.address or None,
    )


async def described_quorum(admin: Admin) -> SurveyedQuorum:
    """Return the state of the controller quorum. Raises RefusedError if the controllers do not
    respond."""
    quorum = await quorum_of(admin)
    if quorum.failure:
        raise RefusedError(
            ErrorCode.NOT_CONTROLLER, f"the controllers do not answer ({quorum.failure})"
        )
    return quorum


def has_voter(quorum: QuorumDescription, voter: Voter) -> bool:
    """Return whether the voters of the quorum include `voter`, compared by node id and directory
    id."""
    return (voter.id, voter.directory_id) in {(one.node, one.directory_id) for one in quorum.voters}


async def change_voters(
    admin: Admin,
    request: Callable[[], Awaitable[None]],
    is_made: Callable[[QuorumDescription], bool],
    timeout_s: float,
    waits_for: Voter | None = None,
) -> None:
    """Request a change of the quorum's voters, repeatedly if needed, until the change is committed.

    Raises a final refusal at once. Raises the last of all other refusals after `timeout_s`. While
    the change waits for the controller `waits_for`, prints notes about its lag.
    """
    ends_at_s = trio.current_time() + timeout_s
    reason = ""
    progress = LagNotes(waits_for)
    while True:
        try:
            await request()
        except RefusedError as error:
            refusal = error
        except ConnectionLostError as error:
            refusal = RefusedError(ErrorCode.NETWORK_EXCEPTION, str(error))
        else:
            return
        if refusal.code not in UNDECIDED | MADE_BEFORE:
            raise refusal
        if await _is_committed(admin, is_made, ends_at_s, progress):
            return
        if refusal.code not in UNDECIDED or trio.current_time() >= ends_at_s:
            raise refusal
        if refusal.message != reason:
            reason = refusal.message
            note(f"ottla quorum: {reason.rstrip('.')}; trying again")
        await trio.sleep(ASK_AGAIN_S)


async def _is_committed(
    admin: Admin,
    is_made: Callable[[QuorumDescription], bool],
    ends_at_s: float,
    progress: "LagNotes",
) -> bool:
    """Wait until a change of the quorum's voters is committed, and return True. Returns False if
    the leader does not have the change.

    The voters that the leader describes may not be committed yet. They are committed once the high
    watermark reaches the log end that the same leader reported with them. Raises RefusedError if
    that has not happened by the time `ends_at_s`.
    """
    epoch, end_offset = -1, 0
    while True:
        quorum = await admin.describe_quorum()
        if not is_made(quorum):
            progress.note(quorum)
            return False
        if quorum.leader_epoch != epoch:
            epoch = quorum.leader_epoch
            end_offset = max(one.end_offset for one in (*quorum.voters, *quorum.observers))
        if quorum.high_watermark >= end_offset:
            return True
        if trio.current_time() >= ends_at_s:
            raise RefusedError(
                ErrorCode.REQUEST_TIMED_OUT,
                "the leader has the change, but a majority of the new voters has not "
                "acknowledged it; see 'ottla quorum replicas'",
            )
        await trio.sleep(ASK_AGAIN_S)


def _report(
    arguments: argparse.Namespace, node: int, directory: str, said: str, **made: bool
) -> None:
    if arguments.format == "json":
        print_json({"id": node, "directory_id": directory, **made})
    else:
        say(said)


class LagNotes:
    """Printer of notes, on standard error, about a controller that is catching up with the
    leader."""

    def __init__(self, voter: Voter | None) -> None:
        self._voter = voter
        self._last = ""
        self._next_s = trio.current_time() + PROGRESS_S

    def note(self, quorum: QuorumDescription) -> None:
        """Print the lag of the controller behind the leader if it has changed. Prints at most one
        note per PROGRESS_S seconds."""
        if self._voter is None or trio.current_time() < self._next_s:
            return
        self._next_s = trio.current_time() + PROGRESS_S
        node, directory = self._voter.id, self._voter.directory_id
        end_offset = max(one.end_offset for one in (*quorum.voters, *quorum.observers))
        found = {one.directory_id: one for one in quorum.observers if one.node == node}
        text = f"controller {node} does not fetch from the leader yet"
        if directory in found:
            lag = end_offset - found[directory].end_offset
            text = f"controller {node} is {counted(lag, 'record')} behind the leader"
        elif found:
            others = ", ".join(map(uuid_to_text, found))
            wanted = uuid_to_text(directory)
            text = f"the leader knows node {node} with directory {others}, not {wanted}"
        if text != self._last:
            note(f"ottla quorum: {text}")
        self._last = text


TIMEOUT = option(
    "--timeout SECONDS",
    "longest time to try, while the controllers cannot make the change",
    type=float,
    default=TIMEOUT_S,
)

VOTER_VERBS = (
    admin_verb(
        "add",
        "add a controller, which runs and has caught up, to the voters",
        add,
        option(
            "controller ID@HOST:PORT:DIRECTORY",
            "node.id, address of the controller listener, and id of the metadata directory",
        ),
        CONFIRMATION,
        TIMEOUT,
        AT_CONTROLLERS,
        description="The controller runs as an observer first; 'ottla quorum replicas' shows its "
        "directory and how far it is behind. A change that timed out is looked up before it is "
        "requested again.",
    ),
    admin_verb(
        "remove",
        "remove a controller from the voters",
        remove,
        option("id ID", "node.id of the controller", type=int),
        option("--directory ID", "id of its metadata directory (default: looked up)"),
        option("--unregister", "delete its registration, too; stop the controller first"),
        CONFIRMATION,
        TIMEOUT,
        AT_CONTROLLERS,
        description="The last voter stays, and so does one without which the others are no "
        "majority. A change that timed out is looked up before it is requested again.",
    ),
    admin_verb(
        "replicas", "list voters and observers with lag and directory", replicas, AT_CONTROLLERS
    ),
)
