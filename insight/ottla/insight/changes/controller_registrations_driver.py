"""Deletes the registration of a controller that was removed from the cluster.

Such a registration blocks upgrades of features, because nothing shows that the controller supports
them. The controllers accept the request with almost no checks, as in Kafka. The state of the quorum
is therefore checked first.
"""

import trio

from ottla.client.admin import Admin
from ottla.insight.changes.voter_changes_driver import described_quorum, refusal_of
from ottla.insight.facts.survey_driver import SurveyedQuorum, quorum_of
from ottla.insight.rules.health import SILENT_AFTER_MS
from ottla.model.errors import ErrorCode, RefusedError

ASK_AGAIN_S = 0.5
TIMEOUT_S = 30.0
RETRIED = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Error codes after which the unregistration request is sent again. Sending it twice has the same
effect as once."""


async def check_controller_gone(admin: Admin, node: int) -> str:
    """Raise RefusedError if a controller is a voter of the quorum.

    Returns a warning if the controller is still running, because it would then register again.
    Returns an empty text if it is not running.
    """
    quorum = await described_quorum(admin)
    if any(one.id == node for one in quorum.voters):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"controller {node} is a voter; 'ottla quorum remove {node} --unregister' removes it "
            "first",
        )
    if await _is_fetching(admin, node, _last_fetch_ms_ago(quorum, node)):
        return f"controller {node} is running; it registers again unless it is stopped"
    return ""


async def unregister_controller(admin: Admin, node: int, timeout_s: float = TIMEOUT_S) -> None:
    """Delete the registration of a controller, even if the active controller changes during the
    call.

    Repeats the request while the controllers respond with a temporary error. If the registration no
    longer exists by then, an earlier request has deleted it. Raises the last refusal after
    `timeout_s` seconds.
    """
    ends_at_s = trio.current_time() + timeout_s
    is_repeated = False
    while True:
        refusal = await refusal_of(admin.unregister_controller(node))
        if refusal is None:
            return
        if refusal.code is ErrorCode.CONTROLLER_ID_NOT_REGISTERED and is_repeated:
            return
        # A leader that was removed from the voters is the active controller until it resigns.
        is_handing_over = refusal.code is ErrorCode.INVALID_REQUEST
        if not is_handing_over and refusal.code not in RETRIED:
            raise refusal
        if trio.current_time() >= ends_at_s:
            raise refusal
        is_repeated = is_repeated or not is_handing_over
        await trio.sleep(ASK_AGAIN_S)


async def _is_fetching(admin: Admin, node: int, first_ms: int | None) -> bool:
    """Return whether a controller still fetches the metadata log. Waits for the next fetch, because
    the controller may have stopped just after its last one.

    `first_ms` is the time in ms since the controller's last fetch.
    """
    asked_at_s, ago_ms = trio.current_time(), first_ms
    while first_ms is not None and ago_ms is not None and ago_ms <= SILENT_AFTER_MS:
        await trio.sleep(ASK_AGAIN_S)
        ago_ms = _last_fetch_ms_ago(await quorum_of(admin), node)
        # Without a fetch, `ago_ms` grows as fast as time passes.
        half_ms = (trio.current_time() - asked_at_s) * 1_000 / 2
        if ago_ms is not None and ago_ms < first_ms + half_ms:
            return True
    return False


def _last_fetch_ms_ago(quorum: SurveyedQuorum, node: int) -> int | None:
    """Return the time in ms since an observer last fetched the metadata log, or None if it is
    unknown. An observer is a node of the quorum that does not vote."""
    return next((one.last_fetch_ms_ago for one in quorum.observers if one.id == node), None)
