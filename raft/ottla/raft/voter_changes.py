"""Changes of the voter set, one at a time (KIP-853), and requests by controllers whose entry in the
set is wrong.

**By the leader.** `VoterChanges` is a mutable class owned by one leader. It decides AddVoter,
RemoveVoter and UpdateVoter in the order of checks of Kafka 4.4, and appends the new set. The set
takes effect at its append; the change ends when the record is committed by a majority of the new
set.

While the set is fixed (`QuorumIdentity.are_voters_fixed`), no controller requests a change, and
every change is refused with UNSUPPORTED_VERSION, as in Kafka at kraft.version 0. Once the set is no
longer fixed, the leader appends the set that is in effect, so that the log contains it.

Invariants: OneChangeAtATime (no set is appended while the previous one is uncommitted, or before an
entry of the leader's own epoch is committed, so that two consecutive sets always share a majority),
ChangesAreAnswered (each request is answered once; REQUEST_TIMED_OUT does not mean that nothing was
appended).

**By a controller.** A controller whose endpoints have changed sends UpdateVoter. A controller that
may join by itself (`controller.quorum.auto.join.enable`) adds itself, after it has removed a voter
with its id and a lost directory (KIP-1186). A controller that was a voter before does not join by
itself, because it was removed on purpose. (Kafka adds it again.) It counts as a former voter if any
voter set in its log includes it, even an uncommitted one."""

from dataclasses import dataclass

from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, ZERO_UUID, Offset, uuid_text
from ottla.raft.answers import endpoints_of_leader
from ottla.raft.effects import OutgoingRequest, VotersAppend
from ottla.raft.messages import (
    AddVoterRequest,
    DescribeReplicaRequest,
    DescribeReplicaResponse,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from ottla.raft.progress import Progress
from ottla.raft.replica import Replica
from ottla.raft.voters import KRAFT_VERSION, VOTERS_MAX, Voter, VoterSet

CAUGHT_UP_AGE_MS_MAX = 3_600_000
"""Time in ms after a replica's last fetch for which the replica still counts as caught up, and may
become a voter. The value is Kafka's."""

FIXED = (
    "The voters cannot be changed at kraft.version 0, nor while the cluster may return to the"
    " previous release: upgrade ottla.version first, then kraft.version to 1."
)

NO_KEY = "The id and the directory id of the voter are required."


@dataclass(slots=True)
class _Change:
    """A change of the voter set that the leader has in progress."""

    token: int | None
    """Token of the client's request for this change while the request waits for its response. None
    after the response."""
    deadline_ms: int
    probed: Voter | None = None
    """New voter whose endpoint the leader is probing. None once the new voter set is appended."""
    probe_id: int | None = None
    """Id of the request in flight that probes the new voter's endpoint. None before the request is
    sent."""
    acks_append: bool = False
    """True if the leader responds once the new voter set is appended, without waiting for its
    commit."""
    offset: Offset = NO_OFFSET
    """Offset of the record with the new voter set, or NO_OFFSET before it is appended."""


class VoterChanges:
    """Change of the voter set that one leader has in progress, if any. There is at most one."""

    __slots__ = ("_change", "_epoch_start_offset")

    def __init__(self, epoch_start_offset: Offset) -> None:
        self._epoch_start_offset = epoch_start_offset
        self._change: _Change | None = None

    # --- requests -----------------------------------------------------------------------------

    def on_request(
        self,
        replica: Replica,
        token: int,
        request: VoterChangeRequest,
        progress: Progress | None,
        now_ms: int,
    ) -> None:
        """Start a change of the voter set, or refuse the request at once.

        For an AddVoterRequest, `progress` is the fetch progress of the new voter as an observer of
        this leader. It is None if the new voter does not fetch, and for other requests.
        """
        match request:
            case AddVoterRequest():
                refusal = self._add(replica, token, request, progress, now_ms)
            case RemoveVoterRequest():
                refusal = self._remove(replica, token, request, now_ms)
            case UpdateVoterRequest():
                refusal = self._update(replica, token, request, now_ms)
        if refusal is not None:
            replica.reply(token, change_response(replica, *refusal))

    def _add(
        self,
        replica: Replica,
        token: int,
        request: AddVoterRequest,
        progress: Progress | None,
        now_ms: int,
    ) -> tuple[ErrorCode, str] | None:
        voter, voters = request.voter, replica.identity.voters
        fault = _fault_of(voter)
        if fault is not None:
            return ErrorCode.INVALID_REQUEST, fault
        refusal = self._refusal_of_now(replica)
        if refusal is not None:
            return refusal
        if voter.id in voters:
            return (
                ErrorCode.DUPLICATE_VOTER,
                f"The id of {_name(voter)} is already in the set of voters {voters.ids}.",
            )
        if len(voters) >= VOTERS_MAX:
            return ErrorCode.INVALID_REQUEST, f"A quorum has at most {VOTERS_MAX} voters."
        if not is_caught_up(progress, now_ms):
            return ErrorCode.REQUEST_TIMED_OUT, _lag_reason(voter)
        deadline_ms = now_ms + replica.config.request_timeout_ms
        self._change = _Change(
            token, deadline_ms, probed=voter, acks_append=not request.ack_when_committed
        )
        return None  # `poll` sends the probe

    def _remove(
        self, replica: Replica, token: int, request: RemoveVoterRequest, now_ms: int
    ) -> tuple[ErrorCode, str] | None:
        key, voters = request.voter_key, replica.identity.voters
        if key.id < 0 or key.directory_id == ZERO_UUID:
            return (
                ErrorCode.INVALID_REQUEST,
                "The id and the directory id of the voter are required.",
            )
        refusal = self._refusal_of_now(replica)
        if refusal is not None:
            return refusal
        voter = voters.get(key.id)
        if voter is None or voter.directory_id != key.directory_id or len(voters) == 1:
            return (
                ErrorCode.VOTER_NOT_FOUND,
                f"Cannot remove voter {key.id} with directory {uuid_text(key.directory_id)} from"
                f" the set of voters {voters.ids}: it is not in the set, or it is the last one.",
            )
        self._append(replica, token, voters.without(key.id), now_ms)
        return None

    def _update(
        self, replica: Replica, token: int, request: UpdateVoterRequest, now_ms: int
    ) -> tuple[ErrorCode, str] | None:
        voter, voters = request.voter, replica.identity.voters
        refusal = self._refusal_of_now(replica)
        if refusal is not None:
            return refusal
        fault = _fault_of(voter)
        if fault is not None:
            return ErrorCode.INVALID_REQUEST, fault
        if not voters.is_voter(voter.key):
            return ErrorCode.VOTER_NOT_FOUND, f"{_name(voter)} is not a voter."
        known = voters.get(voter.id)
        if known != voter:
            self._append(replica, None, voters.with_voter(voter), now_ms)
        return ErrorCode.NONE, ""

    def _refusal_of_now(self, replica: Replica) -> tuple[ErrorCode, str] | None:
        """Return the error code and message with which a leader refuses any change of the voter set
        at this time. Returns None if a change may begin. The checks are in the order of Kafka 4.4.
        """
        wait = self._reason_to_wait(replica)
        if wait is not None:
            return ErrorCode.REQUEST_TIMED_OUT, wait
        if replica.identity.are_voters_fixed:
            return ErrorCode.UNSUPPORTED_VERSION, FIXED
        wait = self._reason_to_wait_for_log(replica)
        return None if wait is None else (ErrorCode.REQUEST_TIMED_OUT, wait)

    def _reason_to_wait(self, replica: Replica) -> str | None:
        """Return the reason why this leader may not begin a change of the voter set yet, or None if
        a change may begin."""
        if self._change is not None:
            return "Request timed out waiting for the leader to handle a previous voter change."
        if replica.high_watermark <= self._epoch_start_offset:
            return "Request timed out waiting for the leader to establish the high watermark."
        return None

    def _reason_to_wait_for_log(self, replica: Replica) -> str | None:
        """Return the reason why the leader may not append another voter set to the log yet, or None
        if an append is permitted."""
        if replica.log.voters_offset >= replica.high_watermark:
            return "Request timed out waiting for the previous set of voters to be committed."
        if replica.is_log_changing:
            return "Request timed out because the leader appends other records now."
        return None

    # --- progress -----------------------------------------------------------------------------

    def on_described(
        self,
        replica: Replica,
        outgoing: OutgoingRequest,
        response: DescribeReplicaResponse,
        progress: Progress | None,
        now_ms: int,
    ) -> None:
        """Append the voter set with the new voter if the response shows that the replica at the
        probed endpoint is that voter. Otherwise end the change with an error."""
        change = self._change
        if change is None or change.probed is None or change.probe_id != outgoing.request_id:
            return
        voter = change.probed
        refusal: tuple[ErrorCode, str] | None = None
        low, high = response.kraft_versions
        if response.error is not ErrorCode.NONE or response.replica_key != voter.key:
            refusal = (
                ErrorCode.REQUEST_TIMED_OUT,
                f"Another replica answers at the endpoint of {_name(voter)}.",
            )
        elif not low <= KRAFT_VERSION <= high:
            refusal = (
                ErrorCode.INVALID_REQUEST,
                f"{_name(voter)} supports kraft.version {low} to {high}, and the cluster has"
                f" {KRAFT_VERSION}.",
            )
        elif not is_caught_up(progress, now_ms):
            refusal = ErrorCode.REQUEST_TIMED_OUT, _lag_reason(voter)
        if refusal is not None:
            self._end(replica, *refusal)
            return
        voter = Voter(
            id=voter.id,
            directory_id=voter.directory_id,
            endpoints=voter.endpoints,
            kraft_versions=response.kraft_versions,
        )
        token, acks_append = change.token, change.acks_append
        self._append(replica, token, replica.identity.voters.with_voter(voter), now_ms)
        if acks_append:
            self._answer(replica, ErrorCode.NONE)

    def on_probe_failed(self, replica: Replica, outgoing: OutgoingRequest) -> None:
        """End the change of the voter set because the probe of the new voter got no response."""
        change = self._change
        if change is not None and change.probe_id == outgoing.request_id:
            self._fail_probe(replica, change)

    def poll(self, replica: Replica, now_ms: int) -> None:
        """Continue the change of the voter set that is in progress.

        The change ends when the record with the new set is committed, or when the deadline passes
        without a response from the new voter's endpoint. If the record is not committed by then,
        its request is answered with REQUEST_TIMED_OUT, and the change remains in progress.

        Without a change in progress, this leader may start one by itself. It appends the first
        voter set if the log lacks it, and corrects its own entry in the set if its endpoints have
        changed.
        """
        change = self._change
        if change is None:
            self._append_by_itself(replica, now_ms)
            return
        if NO_OFFSET < change.offset < replica.high_watermark:
            self._end(replica, ErrorCode.NONE)
        elif now_ms < change.deadline_ms:
            replica.wake_at(change.deadline_ms)
            self._probe(replica, change, now_ms)
        elif change.probed is not None:
            self._fail_probe(replica, change)
        elif change.token is not None:
            self._answer(
                replica,
                ErrorCode.REQUEST_TIMED_OUT,
                "Request timed out waiting for the new set of voters to be committed; it may"
                " still be.",
            )

    def _probe(self, replica: Replica, change: _Change, now_ms: int) -> None:
        """Request the identity of the replica at the endpoint of a new voter, before the voter is
        added.

        The endpoint is stored in the log, and an endpoint that does not work would prevent
        elections.
        """
        voter = change.probed
        if voter is None or change.probe_id is not None or not replica.is_free(voter.id, now_ms):
            return
        probe = DescribeReplicaRequest(
            cluster_id=replica.identity.cluster_id, leader_id=replica.identity.node_id
        )
        change.probe_id = replica.send(voter, probe, now_ms)

    def release(self, replica: Replica) -> None:
        """Refuse the request that waits for a change of the voters with NOT_LEADER_OR_FOLLOWER,
        because this replica no longer leads."""
        self._answer(replica, ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leadership has ended.")
        self._change = None

    def _append_by_itself(self, replica: Replica, now_ms: int) -> None:
        identity = replica.identity
        known = identity.voters.get(identity.node_id)
        voters: VoterSet | None = None
        if is_first_set_missing(replica):
            voters = identity.voters
        elif known is not None and identity.endpoints and known.endpoints != identity.endpoints:
            voters = identity.voters.with_voter(own_entry(replica))
        if voters is not None and self._refusal_of_now(replica) is None:
            self._append(replica, None, voters, now_ms)

    def _append(self, replica: Replica, token: int | None, voters: VoterSet, now_ms: int) -> None:
        assert not replica.is_log_changing
        replica.out.append.append(VotersAppend(leader_epoch=replica.epoch, voters=voters))
        replica.out.flush = True
        deadline_ms = now_ms + replica.config.request_timeout_ms
        self._change = _Change(token, deadline_ms, offset=replica.log.end_offset)
        replica.wake_at(deadline_ms)

    def _fail_probe(self, replica: Replica, change: _Change) -> None:
        assert change.probed is not None
        self._end(
            replica,
            ErrorCode.REQUEST_TIMED_OUT,
            f"The endpoint of {_name(change.probed)} does not answer.",
        )

    def _end(self, replica: Replica, error: ErrorCode, message: str = "") -> None:
        self._answer(replica, error, message)
        self._change = None

    def _answer(self, replica: Replica, error: ErrorCode, message: str = "") -> None:
        change = self._change
        if change is not None and change.token is not None:
            replica.reply(change.token, change_response(replica, error, message))
            change.token = None


def is_first_set_missing(replica: Replica) -> bool:
    """Return whether the log and its snapshots contain no voter set, although the metadata level
    permits voter sets there.

    A leader then appends the set with which its directory was formatted. Otherwise a controller
    that was formatted with another voter set would keep that set after it has read the log.
    """
    log, latest = replica.log, replica.log.latest_snapshot_id
    is_in_snapshot = latest is not None and latest.offset > 0
    is_in_log = log.voters_offset != NO_OFFSET
    may_have = replica.identity.is_controller and not replica.identity.are_voters_fixed
    return may_have and not is_in_snapshot and not is_in_log


def change_response(replica: Replica, error: ErrorCode, message: str = "") -> VoterChangeResponse:
    """Return the response of a leader to a request for a change of the voters."""
    own_id = replica.identity.node_id
    return VoterChangeResponse(
        error=error,
        message=message or None,
        leader_id=own_id,
        leader_epoch=replica.epoch,
        leader_endpoints=endpoints_of_leader(replica, own_id),
    )


def is_caught_up(progress: Progress | None, now_ms: int) -> bool:
    """Return whether a replica has caught up by Kafka's rule for new voters. The replica must have
    had the leader's whole log at some time, and must have fetched in the last hour. Returns False
    if `progress` is None."""
    return (
        progress is not None
        and progress.last_caught_up_ms >= 0
        and now_ms - progress.last_contact_ms < CAUGHT_UP_AGE_MS_MAX
    )


def _fault_of(voter: Voter) -> str | None:
    """Return the reason why a voter's entry in the voter set is incomplete, or None if it is
    complete."""
    if voter.id < 0 or voter.directory_id == ZERO_UUID:
        return NO_KEY
    if not voter.endpoints:
        return f"The request has no endpoint of the controller listener for {_name(voter)}."
    if any(not 0 < one.port < 1 << 16 or not one.host for one in voter.endpoints):
        return f"An endpoint of {_name(voter)} has no host or no port."
    return None


def _lag_reason(voter: Voter) -> str:
    return f"{_name(voter)} has not caught up with the leader yet."


def _name(voter: Voter) -> str:
    return f"voter {voter.id} with directory {uuid_text(voter.directory_id)}"


# --- a controller's own entry --------------------------------------------------------------------


class VoterEntryUpkeep:
    """Schedule of requests with which a follower corrects its own entry in the voter set. At most
    one request is sent per fetch timeout."""

    __slots__ = ("_due_ms",)

    def __init__(self, now_ms: int) -> None:
        self._due_ms = now_ms

    def due_request(self, replica: Replica, now_ms: int) -> VoterChangeRequest | None:
        """Return the request for a change of the voter set to send now. Returns None if no change
        is needed, or if the previous request was sent less than a fetch timeout ago."""
        request = wanted_request(replica)
        if request is None:
            return None
        if now_ms < self._due_ms:
            replica.wake_at(self._due_ms)
            return None
        self._due_ms = now_ms + replica.config.fetch_timeout_ms
        return request


def wanted_request(replica: Replica) -> VoterChangeRequest | None:
    """Return the request that would correct this replica's entry in the voter set.

    Returns None if the entry is correct, if the voter set is fixed, or if the settings have no
    endpoints of this replica. Also returns None if this replica is not a voter and does not join by
    itself.
    """
    identity = replica.identity
    if not identity.endpoints or identity.are_voters_fixed:
        return None
    own = own_entry(replica)
    known = identity.voters.get(identity.node_id)
    if known is not None and known.is_key(identity.key):
        if (known.endpoints, known.kraft_versions) == (own.endpoints, own.kraft_versions):
            return None
        return UpdateVoterRequest(
            cluster_id=identity.cluster_id, leader_epoch=replica.epoch, voter=own
        )
    if not identity.joins_automatically or replica.was_voter or replica.is_added_in_log:
        return None
    if known is not None:
        return RemoveVoterRequest(cluster_id=identity.cluster_id, voter_key=known.key)
    return AddVoterRequest(cluster_id=identity.cluster_id, voter=own, ack_when_committed=False)


def own_entry(replica: Replica) -> Voter:
    """Return this controller as an entry of the voter set, with the endpoints of its settings."""
    identity = replica.identity
    return Voter(
        id=identity.node_id, directory_id=identity.directory_id, endpoints=identity.endpoints
    )
