"""Plans changes of the controller quorum's voters (KIP-853): additions, removals and replacements.
Pure.

The voter set never loses its majority: a replacement adds the new controller before it removes the
old controller. If a directory was lost, its voter is removed first, because a voter set contains
each id only once. After a failure, a new plan contains only the remaining steps.
"""

from typing import NamedTuple

from ottla.insight.facts.survey_driver import SurveyedQuorum, SurveyedReplica
from ottla.insight.rules.health import SILENT_AFTER_MS
from ottla.insight.rules.voter_changes import check_majority_without, voter_in, voter_to_remove
from ottla.model.errors import ConfigError, CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import CONTROLLER_LISTENER, parse_address
from ottla.raft.voters import Voter, VoterEndpoint
from ottla.storage.directories.meta_properties import uuid_from_text, uuid_to_text


class VoterStep(NamedTuple):
    """One change of the voter set: the addition or the removal of a controller."""

    is_addition: bool
    voter: Voter
    address: str
    """Address of the controller as `host:port`. Empty if it is unknown."""

    @property
    def change(self) -> str:
        """The change as a verb: `add` or `remove`."""
        return "add" if self.is_addition else "remove"

    @property
    def directory_id(self) -> str:
        """Id of the controller's metadata directory, in the text form that Kafka prints."""
        return uuid_to_text(self.voter.directory_id)


class VoterPlan(NamedTuple):
    """Ordered steps that change the quorum's voters."""

    steps: tuple[VoterStep, ...]
    voter: Voter
    """The controller that is added; in a removal, the controller that is removed."""
    result: str
    """Sentence about the state after the last step."""


def voter_of(text: str, listener: str = CONTROLLER_LISTENER) -> Voter:
    """Parse a controller's text `id@host:port:directoryId`, as in Kafka's `--initial-controllers`.
    Returns a voter with that address on the listener named `listener`.

    A running controller corrects the name of its listener in the voter set by itself. Raises
    ValueError or CorruptDataError if the text has another form.
    """
    identity, _, rest = text.strip().partition("@")
    address, _, directory = rest.rpartition(":")
    host, port = parse_address(address)
    return Voter(
        id=NodeId(int(identity)),
        directory_id=uuid_from_text(directory),
        endpoints=(VoterEndpoint(listener, host, port),),
    )


def parse_voter(name: str, text: str) -> Voter:
    """Return the controller in the value of the option or field `name`. Raises ConfigError if the
    text does not have the form `id@host:port:directoryId`."""
    try:
        return voter_of(text)
    except (ValueError, CorruptDataError):
        raise ConfigError(
            name,
            f"is {text[:300]!r}; it must be ID@HOST:PORT:DIRECTORY, and 'ottla quorum replicas' "
            "shows id and directory of a controller that follows the leader",
        ) from None


def plan_addition(quorum: SurveyedQuorum, new: Voter) -> VoterPlan:
    """Return the plan that adds a controller to the voters. Raises RefusedError if a voter has its
    id and another directory."""
    found = voter_in(quorum, new.id)
    directory = uuid_to_text(new.directory_id)
    if found is not None and found.directory_id != directory:
        raise RefusedError(
            ErrorCode.DUPLICATE_VOTER,
            f"controller {new.id} is a voter with directory {found.directory_id}; if that "
            f"directory is lost, 'ottla quorum remove {new.id}' comes first",
        )
    if found is not None:
        return VoterPlan((), new, f"controller {new.id} is a voter already")
    return VoterPlan((_addition(new),), new, f"controller {new.id} is a voter now")


def plan_removal(quorum: SurveyedQuorum, node: NodeId, directory: str | None = None) -> VoterPlan:
    """Return the plan that removes a controller from the voters.

    Raises RefusedError if the controller is not a voter, if it has another directory than
    `directory`, or if the remaining voters would not be a majority.
    """
    gone = voter_to_remove(quorum, node, directory)
    check_majority_without(quorum, gone)
    step = _removal(gone)
    return VoterPlan(
        (step,),
        step.voter,
        f"controller {node} is no voter any longer; stop it, or it goes on as an observer",
    )


def plan_replacement(
    quorum: SurveyedQuorum,
    old_id: NodeId,
    by: Voter | None,
    address: str = "",
    *,
    address_name: str = "--address",
) -> VoterPlan:
    """Return the plan that replaces a voter by the controller `by`. If `by` is None, the voter
    stays and gets its new directory, and `address` replaces its address.

    Raises RefusedError if the voter or the directory does not exist, or ConfigError if the address
    is malformed.
    """
    new = by or _with_new_directory(quorum, old_id, address, address_name)
    gone = _gone_voter(quorum, old_id, new)
    is_added = any(
        (one.id, one.directory_id) == (new.id, uuid_to_text(new.directory_id))
        for one in quorum.voters
    )
    if gone is None and not is_added and new.id != old_id:
        voter_to_remove(quorum, old_id, None)  # refuses it: a mistyped id would only add a voter
    additions = () if is_added else (_addition(new),)
    if gone is None:
        if is_added:
            said = f"controller {new.id} is a voter already; nothing is left to do"
            return VoterPlan((), new, said)
        said = f"controller {new.id} is a voter now, in place of one that was removed before"
        return VoterPlan(additions, new, said)
    name = f"controller {gone.id} with directory {gone.directory_id}"
    said = f"controller {new.id} is a voter now, in place of {name}"
    if new.id == old_id:
        voter_to_remove(quorum, old_id, gone.directory_id)
        check_majority_without(quorum, gone)
        return VoterPlan((_removal(gone), *additions), new, said)
    return VoterPlan((*additions, _removal(gone)), new, said)


def _addition(new: Voter) -> VoterStep:
    endpoint = new.endpoints[0]
    return VoterStep(True, new, f"{endpoint.host}:{endpoint.port}")


def _removal(gone: SurveyedReplica) -> VoterStep:
    voter = Voter(id=NodeId(gone.id), directory_id=uuid_from_text(gone.directory_id))
    return VoterStep(False, voter, gone.address)


def _with_new_directory(
    quorum: SurveyedQuorum, node: NodeId, address: str, address_name: str
) -> Voter:
    """Return a controller with its new metadata directory. With this directory, the controller is
    an observer that follows the leader."""
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
    place = address or ("" if known is None else known.address)
    try:
        host, port = parse_address(place)
    except ValueError:
        raise ConfigError(address_name, f"is {place!r}; give the controller's HOST:PORT") from None
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
