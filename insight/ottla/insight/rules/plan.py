"""Explains a planned change of the cluster as a dry run: its steps and their cost, or the reason
against it. Pure.

A plan equals the plan of the corresponding command, but is only shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import ceil

from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    FactTable,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.survey_driver import DRAINS, SurveyedPartition, SurveyedReplica
from ottla.insight.rules.draining import check_leaders_remain
from ottla.insight.rules.voter_changes import check_majority_without, voter_in, voter_to_remove
from ottla.model.amounts import amount, counted, duration
from ottla.model.balance.cluster_load import BalanceLimits
from ottla.model.balance.move_plan import BalancePlan, UnmovedReason
from ottla.model.balance.planner import plan_moves
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.balance import DEFAULT_RATE_MAX

ROWS_MAX = 100
"""Maximum number of rows in each table of a plan's explanation."""
EXAMPLES_MAX = 3
MS_PER_S = 1_000
NOT_OF_OTTLA = (
    "only brokers of Ottla carry out such a plan; 'ottla topic reassign' moves replicas of other "
    "brokers, too"
)
MOVES = ("topic", "partition", "replicas", "replicas after", "bytes to copy", "reason")
LOADS = (
    "broker",
    "bytes",
    "bytes after",
    "replicas",
    "replicas after",
    "leaders",
    "leaders after",
)
UNMOVED = ("not moved", "examples", "reason")
LEADERSHIPS = ("topic", "partition", "replicas in sync")
CONTROLLERS = ("controller", "role", "lag in records", "address", "directory")


def explain_plan(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation with the steps of a planned change of the cluster, or the reason why
    the change is refused."""
    change = values.get("change", "")
    subject = SUBJECTS.get(change, change)
    key = "controller" if change.endswith("voter") else "broker"
    node = values.get(key, "")
    if change != "balance":
        subject = f"{subject} {node}".rstrip()
        if not node.isdecimal() or len(node) > 9:
            reason = f"{key}: give the id of the {key}"
            return concluded("plan", subject, [], unknown=[reason, *facts.unknown])
    survey = facts.survey
    if facts.missing or survey is None:
        return concluded("plan", subject, [], unknown=facts.unknown)
    try:
        if key == "broker" and not survey.serves_own_requests:
            facts = replace(facts, refusal=NOT_OF_OTTLA)
        if facts.refusal:
            causes, tables = [_refused(facts.refusal)], list[FactTable]()
        elif change == "balance":
            causes, tables = _balance(facts)
        elif change == "remove-broker":
            causes, tables = _removal(facts, int(node))
        elif change == "drain-broker":
            causes, tables = _drain(facts, int(node))
        else:
            causes, tables = _voters(facts, int(node), is_added=change == "add-voter")
    except RefusedError as refusal:
        causes, tables = [_refused(refusal.message)], []
    return concluded("plan", subject, causes, tables=tables)


SUBJECTS = {
    "balance": "balance of the brokers",
    "remove-broker": "removal of broker",
    "drain-broker": "drain of broker",
    "add-voter": "addition of voter",
    "remove-voter": "removal of voter",
}
"""Noun phrases for the plannable changes of the cluster, by the value of the parameter."""


def _refused(reason: str) -> Cause:
    return Cause(
        kind="refused",
        summary=f"the command would refuse it: {reason.rstrip('.')}",
        more=command("explain", "health"),
    )


def _balance(facts: ClusterFacts) -> tuple[list[Cause], list[FactTable]]:
    if facts.stored_move_count:
        steps = Cause(
            kind="plan-in-progress",
            summary=f"a plan with {counted(facts.stored_move_count, 'move')} is in progress",
            remedy="wait for its end, or cancel it",
            fix=command("cluster", "balance", "--cancel"),
            more=command("cluster", "balance", "--status"),
        )
        return [steps], []
    if facts.load is None:
        return [], []
    plan = plan_moves(facts.load, BalanceLimits(throttle_bytes_per_s=DEFAULT_RATE_MAX))
    if plan.is_refused:
        return [_refused(f"nothing moves: {plan.unmoved[0].reason}")], []
    causes = []
    if plan.moves:
        causes.append(
            Cause(
                kind="moves",
                summary=plan_text(plan, DEFAULT_RATE_MAX),
                evidence=_costs(plan),
                fix=command("cluster", "balance"),
                more=command("cluster", "balance", "--dry-run"),
            )
        )
    return causes, list(_plan_tables(plan))


def _removal(facts: ClusterFacts, broker: int) -> tuple[list[Cause], list[FactTable]]:
    removal = facts.removal
    if removal is None:
        return [], []
    moved = len(removal.partitions)
    text = plan_text(removal.plan, DEFAULT_RATE_MAX) if removal.plan.moves else "nothing to copy"
    step = Cause(
        kind="removal",
        summary=f"{counted(moved, 'partition')} of broker {broker} must move ({text}); then it "
        "must be stopped, and is unregistered",
        evidence=(
            Evidence("partitions", moved),
            Evidence("moves in progress", len(removal.under_way)),
            *_costs(removal.plan),
        ),
        fix=command("broker", "remove", broker),
        more=command("broker", "remove", broker, "--dry-run"),
    )
    return [step], list(_plan_tables(removal.plan))


def _drain(facts: ClusterFacts, broker: int) -> tuple[list[Cause], list[FactTable]]:
    survey = facts.survey
    if survey is None:
        return [], []
    known = next((one for one in survey.brokers if one.id == broker), None)
    if known is None:
        return [_refused(f"there is no broker {broker} in this cluster")], []
    if known.state in DRAINS:
        return [], []
    check_leaders_remain({broker}, survey.partitions)
    led = [one for one in survey.partitions if one.leader_id == broker]
    step = Cause(
        kind="leaderships",
        summary=f"broker {broker} would transfer {counted(len(led), 'leadership')} to others, and "
        "lead nothing until it starts again",
        evidence=(Evidence("leaderships", len(led)),),
        fix=command("broker", "drain", broker),
        more=command("broker", "describe", broker),
    )
    return [step], [FactTable("leaderships", LEADERSHIPS, tuple(map(_led_row, led[:ROWS_MAX])))]


def _led_row(one: SurveyedPartition) -> tuple[str, int, str]:
    return one.topic, int(one.name.rpartition("-")[2]), ",".join(map(str, one.isr))


def _voters(
    facts: ClusterFacts, node: int, *, is_added: bool
) -> tuple[list[Cause], list[FactTable]]:
    quorum = facts.survey.quorum if facts.survey is not None else None
    if quorum is None:
        return [], []
    if quorum.failure:
        return [_refused(f"the controllers do not answer ({quorum.failure})")], []
    rows = [_controller_row(one, "voter") for one in quorum.voters]
    rows += [_controller_row(one, "observer") for one in quorum.observers]
    tables = [FactTable("controllers", CONTROLLERS, tuple(rows[:ROWS_MAX]))]
    if not is_added:
        gone = voter_to_remove(quorum, NodeId(node), None)
        check_majority_without(quorum, gone)
        step = Cause(
            kind="removal",
            summary=f"controller {node} would be no voter any longer; "
            f"{counted(len(quorum.voters) - 1, 'voter')} remain",
            remedy="stop it afterwards, or it goes on as an observer",
            fix=command("quorum", "remove", node),
            more=command("quorum", "remove", node, "--dry-run"),
        )
        return [step], tables
    if voter_in(quorum, node) is not None:
        return [], tables
    found = next((one for one in quorum.observers if one.id == node), None)
    if found is None:
        raise_text = (
            f"no controller {node} follows the leader; format its directory with 'ottla storage "
            "format --no-initial-controllers', and start it"
        )
        return [_refused(raise_text)], tables
    text = f"{node}@{found.address or 'HOST:PORT'}:{found.directory_id}"
    step = Cause(
        kind="addition",
        summary=f"controller {node} would be a voter; it is {counted(found.lag, 'record')} behind "
        "the leader",
        evidence=(Evidence("lag in records", found.lag),),
        fix=command("quorum", "add", text),
        more=command("quorum", "replicas"),
    )
    return [step], tables


def _controller_row(
    one: SurveyedReplica, role: str
) -> tuple[int, str, int, str | None, str | None]:
    return one.id, role, one.lag, one.address or None, one.directory_id or None


def _costs(plan: BalancePlan) -> tuple[Evidence, ...]:
    return (
        Evidence("bytes to copy", plan.copied_bytes),
        Evidence("least time in seconds", ceil(plan.seconds(DEFAULT_RATE_MAX))),
    )


def _plan_tables(plan: BalancePlan) -> Iterator[FactTable]:
    moves = tuple(
        (*move.at, _ids(move.before), _ids(move.after), move.copied_bytes, move.reason)
        for move in plan.moves[:ROWS_MAX]
    )
    loads = tuple(
        (
            int(broker),
            plan.before[broker].size_bytes,
            after.size_bytes,
            plan.before[broker].replica_count,
            after.replica_count,
            plan.before[broker].leader_count,
            after.leader_count,
        )
        for broker, after in list(plan.after.items())[:ROWS_MAX]
    )
    yield FactTable("moves", MOVES, moves)
    if plan.moves:
        yield FactTable("brokers", LOADS, loads)
    yield FactTable("not moved", UNMOVED, tuple(unmoved_rows(plan.unmoved))[:ROWS_MAX])


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def unmoved_rows(unmoved: Iterable[UnmovedReason]) -> Iterator[tuple[int, str, str]]:
    """Yield a row for each reason why replicas are not moved: the number of affected partitions or
    brokers, examples of them, and the reason."""
    by_reason: dict[str, list[str]] = {}
    for one in unmoved:
        by_reason.setdefault(one.reason, []).append(one.subject or "cluster")
    for reason, subjects in by_reason.items():
        more = ", …" if len(subjects) > EXAMPLES_MAX else ""
        yield len(subjects), ", ".join(subjects[:EXAMPLES_MAX]) + more, reason


def plan_text(plan: BalancePlan, throttle: int) -> str:
    """Return a text with the size of a plan of replica moves and its estimated duration. `throttle`
    is in bytes per second."""
    copies = sum(bool(move.adding) for move in plan.moves)
    text = f"{counted(len(plan.moves) - copies, 'election')}, {counted(copies, 'move')}"
    if copies:
        text += f": {estimate_text(plan.copied_bytes, plan.seconds(throttle), throttle)}"
    return text


def estimate_text(copied_bytes: int, seconds: float, rate: int) -> str:
    """Return a text with the number of bytes that moves copy, and the minimum time for copying
    them."""
    span = duration(ceil(seconds) * MS_PER_S)
    text = f"{amount(copied_bytes)} to copy, at least {span}"
    return f"{text} at {amount(rate)}/s to and from each broker"
