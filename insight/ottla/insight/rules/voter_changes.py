"""Checks the conditions for changes of the controller quorum's voters (KIP-853). Pure."""

from ottla.insight.facts.survey_driver import SurveyedQuorum, SurveyedReplica
from ottla.insight.rules.health import SILENT_AFTER_MS
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId


def voter_in(quorum: SurveyedQuorum, node: int) -> SurveyedReplica | None:
    """Return the voter of the quorum with a node id, or None if the quorum has no such voter."""
    return next((one for one in quorum.voters if one.id == node), None)


def voter_to_remove(quorum: SurveyedQuorum, node: NodeId, directory: str | None) -> SurveyedReplica:
    """Return the voter of the quorum with a node id and, if given, a directory id. Raises
    RefusedError if there is no such voter."""
    found = voter_in(quorum, node)
    ids = ", ".join(str(one.id) for one in quorum.voters)
    if found is None:
        raise RefusedError(
            ErrorCode.VOTER_NOT_FOUND, f"controller {node} is no voter; the voters are {ids}"
        )
    if directory is not None and directory != found.directory_id:
        raise RefusedError(
            ErrorCode.VOTER_NOT_FOUND,
            f"controller {node} is a voter with directory {found.directory_id}, not {directory}",
        )
    if not found.directory_id:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"the directory of controller {node} is unknown: its voters were configured by "
            "controller.quorum.voters alone, and cannot be changed",
        )
    if len(quorum.voters) == 1:
        raise RefusedError(
            ErrorCode.VOTER_NOT_FOUND,
            f"controller {node} is the last voter; add another before it is removed",
        )
    return found


def check_majority_without(quorum: SurveyedQuorum, gone: SurveyedReplica) -> None:
    """Raise RefusedError if the voters that remain after removing the voter `gone` could not commit
    the change."""
    left = [one for one in quorum.voters if one.id != gone.id]
    silent = [one.id for one in left if not _is_heard(one)]
    if len(left) - len(silent) > len(left) // 2:
        return
    raise RefusedError(
        ErrorCode.INVALID_REQUEST,
        f"without controller {gone.id} there is no majority: of the voters left, "
        f"{', '.join(map(str, silent))} does not fetch; start it, or remove it first",
    )


def _is_heard(voter: SurveyedReplica) -> bool:
    ago_ms = voter.last_fetch_ms_ago
    return ago_ms is not None and ago_ms <= SILENT_AFTER_MS
