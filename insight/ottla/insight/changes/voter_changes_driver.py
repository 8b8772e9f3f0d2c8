"""Carries out plans of changes of the quorum's voters, one step after the other (KIP-853).

A change may take effect although its response is lost or is REQUEST_TIMED_OUT. After such a
response, DescribeQuorum shows whether the quorum has the change. If not, the change is requested
again.
"""

from collections.abc import Awaitable

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cluster import QuorumDescription
from ottla.client.network.active_controller import cluster_id_at
from ottla.client.network.connection import ConnectionLostError
from ottla.insight.changes.progress import Report
from ottla.insight.changes.voter_plans import VoterPlan, VoterStep
from ottla.insight.facts.survey_driver import SurveyedQuorum, quorum_of
from ottla.insight.rules.voter_changes import check_majority_without, voter_in
from ottla.model.amounts import counted
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.endpoints import parse_address
from ottla.raft.voters import Voter
from ottla.storage.directories.meta_properties import uuid_to_text

ASK_AGAIN_S = 0.5
PROGRESS_S = 2.0
"""Minimum interval in seconds between two reports about a controller that is catching up with the
leader."""

TIMEOUT_S = 60.0
"""Default timeout, in seconds, of one step of a plan that changes the voters."""
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
them, the change may also be requested again."""

SEE_LEVELS = "'ottla cluster upgrade status' names the command"
MADE_BEFORE = frozenset((ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND))
"""Error codes with which a repeated change of the voters may be refused because it was already
made. This client or a broker may have repeated the request."""


async def described_quorum(admin: Admin) -> SurveyedQuorum:
    """Return the state of the controller quorum. Raises RefusedError if the controllers do not
    respond."""
    quorum = await quorum_of(admin)
    if quorum.failure:
        raise RefusedError(
            ErrorCode.NOT_CONTROLLER, f"the controllers do not answer ({quorum.failure})"
        )
    return quorum


async def check_additions(quorum: SurveyedQuorum, plan: VoterPlan) -> None:
    """Raise RefusedError if a plan adds a controller whose address belongs to another cluster.

    The quorum's leader would only report that the controller has not caught up. The check is
    skipped if the leader or the controller does not respond to this client.
    """
    for step in plan.steps:
        if step.is_addition:
            await _check_cluster(quorum, step.voter)


async def _check_cluster(quorum: SurveyedQuorum, new: Voter) -> None:
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


async def change_voters(admin: Admin, plan: VoterPlan, report: Report, timeout_s: float) -> None:
    """Carry out the steps of a plan, each within `timeout_s` seconds. Raises RefusedError if a
    step is refused; the steps before it are not undone."""
    for number, step in enumerate(plan.steps):
        if number and not step.is_addition:
            quorum = await described_quorum(admin)
            gone = voter_in(quorum, step.voter.id)
            if gone is not None:
                check_majority_without(quorum, gone)
        await _make(admin, step, report, timeout_s)
        if len(plan.steps) > 1:
            name = f"controller {step.voter.id}"
            if not step.is_addition:
                name += f" with directory {step.directory_id}"
            report(f"{name} is {'added' if step.is_addition else 'removed'}")


async def _make(admin: Admin, step: VoterStep, report: Report, timeout_s: float) -> None:
    """Request one change of the voters, and repeat the request until the change is committed.

    While a controller is being added, its lag is reported. Raises RefusedError at once for a
    refusal that a repeated request cannot cure. For other refusals, raises the latest refusal after
    `timeout_s` seconds.
    """
    ends_at_s = trio.current_time() + timeout_s
    reason = ""
    progress = LagReports(step.voter if step.is_addition else None, report)
    while True:
        refusal = await refusal_of(_request(admin, step))
        if refusal is None:
            return
        if refusal.code is ErrorCode.UNSUPPORTED_VERSION:
            raise RefusedError(refusal.code, f"{refusal.message.rstrip('.')}; {SEE_LEVELS}")
        if refusal.code not in UNDECIDED | MADE_BEFORE:
            raise refusal
        if await _is_committed(admin, step, ends_at_s, progress):
            return
        if refusal.code not in UNDECIDED or trio.current_time() >= ends_at_s:
            raise refusal
        if refusal.message != reason:
            reason = refusal.message
            report(f"{reason.rstrip('.')}; trying again")
        await trio.sleep(ASK_AGAIN_S)


async def refusal_of(request: Awaitable[None]) -> RefusedError | None:
    """Return the error with which a change was refused, or None if it was accepted. After a lost
    connection, the error is NETWORK_EXCEPTION: the change may have been made."""
    try:
        await request
    except RefusedError as error:
        return error
    except ConnectionLostError as error:
        return RefusedError(ErrorCode.NETWORK_EXCEPTION, str(error))
    return None


async def _request(admin: Admin, step: VoterStep) -> None:
    voter = step.voter
    if not step.is_addition:
        await admin.remove_voter(voter.id, voter.directory_id)
        return
    endpoint = voter.endpoints[0]
    listeners = {endpoint.name: (endpoint.host, endpoint.port)}
    await admin.add_voter(voter.id, voter.directory_id, listeners)


def _has_voter(quorum: QuorumDescription, voter: Voter) -> bool:
    """Return whether the voters of the quorum include `voter`, compared by node id and directory
    id."""
    return (voter.id, voter.directory_id) in {(one.node, one.directory_id) for one in quorum.voters}


async def _is_committed(
    admin: Admin, step: VoterStep, ends_at_s: float, progress: "LagReports"
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
        if _has_voter(quorum, step.voter) != step.is_addition:
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


class LagReports:
    """Reports about a controller that is catching up with the leader."""

    def __init__(self, voter: Voter | None, report: Report) -> None:
        self._voter = voter
        self._report = report
        self._last = ""
        self._next_s = trio.current_time() + PROGRESS_S

    def note(self, quorum: QuorumDescription) -> None:
        """Report the lag of the controller behind the leader if it has changed. Makes at most one
        report per PROGRESS_S seconds."""
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
            self._report(text)
        self._last = text
