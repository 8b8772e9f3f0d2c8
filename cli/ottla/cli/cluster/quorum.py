"""`ottla quorum status`: shows the leader of the controller quorum, and the lags of the other
controllers."""

import argparse

from ottla.cli.cluster.status import quorum_json
from ottla.cli.cluster.voters.controller_registrations import UNREGISTER
from ottla.cli.cluster.voters.metadata_snapshot import SNAPSHOT
from ottla.cli.cluster.voters.quorum_log import LOG
from ottla.cli.cluster.voters.voter_replacement import REPLACE
from ottla.cli.cluster.voters.voter_requests import VOTER_VERBS
from ottla.cli.common import AT_CONTROLLERS, print_json
from ottla.cli.tables import Identifier, Milliseconds, print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.insight.facts.survey_driver import SurveyedQuorum, SurveyedReplica, quorum_of
from ottla.insight.rules.health import quorum_reasons
from ottla.model.errors import ErrorCode, RefusedError

UNHEALTHY = 2
COLUMNS = (
    "ID",
    "ROLE",
    "LOG-END",
    "LAG",
    "FETCHED-AGO",
    "CAUGHT-UP-AGO",
    "ADDRESS",
    "DIRECTORY",
)


async def status(admin: Admin, arguments: argparse.Namespace) -> int:
    """Print the state of the controller quorum. Returns exit code 2 if there is no leader, or a
    voter does not fetch."""
    quorum = await quorum_of(admin)
    if quorum.denial:
        raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, quorum.denial)
    reasons = list(quorum_reasons(quorum))
    if arguments.format == "json":
        print_json({"healthy": not reasons, "reasons": reasons, **quorum_json(quorum)})
    elif not quorum.failure:
        _say_quorum(quorum)
    for reason in reasons if arguments.format == "table" else ():
        note(f"ottla quorum: {reason}")
    return UNHEALTHY if reasons else 0


def _say_quorum(quorum: SurveyedQuorum) -> None:
    """Print the controller quorum's leader and its replicas with their lags."""
    rows = [
        _row(replica, "leader" if replica.id == quorum.leader_id else "voter")
        for replica in quorum.voters
    ]
    rows += [_row(replica, "observer") for replica in quorum.observers]
    say(f"leader {quorum.leader_id}, epoch {quorum.epoch}, high watermark {quorum.high_watermark}")
    say()
    print_table(COLUMNS, rows)


def _row(replica: SurveyedReplica, role: str) -> tuple[object, ...]:
    return (
        replica.id,
        role,
        replica.log_end_offset,
        replica.lag,
        _ago(replica.last_fetch_ms_ago),
        _ago(replica.last_caught_up_ms_ago),
        replica.address or None,
        Identifier(replica.directory_id) if replica.directory_id else None,
    )


def _ago(span_ms: int | None) -> Milliseconds | None:
    return None if span_ms is None else Milliseconds(span_ms)


VERBS = (
    admin_verb(
        "status",
        "show leader, epoch, high watermark, voters and observers",
        status,
        AT_CONTROLLERS,
    ),
    *VOTER_VERBS,
    REPLACE,
    UNREGISTER,
    LOG,
    SNAPSHOT,
)
