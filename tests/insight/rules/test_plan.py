"""The answer "plan": steps of a change, their cost, or the reason against it."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.insight.explanation import Conclusion, Explanation
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.removal_driver import BrokerRemoval
from ottla.insight.facts.survey_driver import (
    Survey,
    SurveyedBroker,
    SurveyedPartition,
    SurveyedQuorum,
    SurveyedReplica,
)
from ottla.insight.rules.plan import explain_plan
from ottla.model.balance.cluster_load import BalanceLimits, BrokerLoad, ClusterLoad, PartitionLoad
from ottla.model.balance.planner import plan_moves
from ottla.model.ids import NodeId, TopicPartition
from tests.insight.rules.test_totality import check_commands

GIB = 1 << 30
MOVED = TopicPartition("t", 0)


def explained(change: str, *, node: int | None = None, **facts: Any) -> Explanation:
    values = {"change": change}
    if node is not None:
        values["controller" if change.endswith("voter") else "broker"] = str(node)
    found = explain_plan(ClusterFacts(now_ms=0, **{"survey": survey(), **facts}), values)
    check_commands(found)
    return found


def only(found: Explanation) -> tuple[str, str]:
    """Return the kind and the fix of the only step."""
    (cause,) = found.causes
    return cause.kind, cause.fix


def load(*sizes: int, leaving: tuple[int, ...] = ()) -> ClusterLoad:
    """Two brokers; all partitions, of these sizes, are on broker 1."""
    return ClusterLoad(
        brokers=(BrokerLoad(id=NodeId(1)), BrokerLoad(id=NodeId(2))),
        partitions=tuple(
            PartitionLoad(
                at=TopicPartition("t", at),
                replicas=(NodeId(1),),
                isr=(NodeId(1),),
                leader=NodeId(1),
                size_bytes=size,
            )
            for at, size in enumerate(sizes)
        ),
        leaving=frozenset(map(NodeId, leaving)),
    )


def broker(id_: int, state: str = "RUNNING") -> SurveyedBroker:
    return SurveyedBroker(id=id_, host="h", port=1, rack=None, is_fenced=False, state=state)


def partition(*isr: int, leader: int) -> SurveyedPartition:
    return SurveyedPartition(
        name="t-0", topic="t", leader_id=leader, replicas=[1, 2], isr=list(isr)
    )


def replica(id_: int, *, fetched_ms_ago: int = 0, lag: int = 0) -> SurveyedReplica:
    return SurveyedReplica(
        id=id_,
        directory_id=f"dir{id_}",
        address=f"h:{id_}",
        log_end_offset=9,
        lag=lag,
        last_fetch_ms_ago=fetched_ms_ago,
        last_caught_up_ms_ago=0,
    )


def survey(*partitions: SurveyedPartition, **quorum: Any) -> Survey:
    return Survey(
        cluster_id="c",
        quorum=SurveyedQuorum(leader_id=101, **quorum),
        brokers=[broker(1), broker(2, state="DRAINED")],
        partitions=list(partitions),
        min_insync={},
    )


def test_a_balance_names_its_moves_its_cost_and_the_command() -> None:
    found = explained("balance", load=load(GIB, GIB))
    assert only(found) == ("moves", "ottla cluster balance")
    assert "1 move: 1 GiB to copy, at least 53.0 s" in found.causes[0].summary.replace(
        "54 s", "53.0 s"
    )
    tables = found.as_json["tables"]
    (move,) = tables["moves"]
    assert (move["replicas"], move["replicas after"], move["bytes to copy"]) == ("1", "2", GIB)
    assert [row["bytes after"] for row in tables["brokers"]] == [GIB, GIB]


def test_a_balanced_cluster_needs_no_step_and_a_plan_in_progress_is_named() -> None:
    assert explained("balance", load=load()).verdict is Conclusion.CLEAR
    assert only(explained("balance", stored_move_count=3)) == (
        "plan-in-progress",
        "ottla cluster balance --cancel",
    )


def test_a_removal_names_the_moves_that_empty_the_broker() -> None:
    state = load(GIB, leaving=(1,))
    removal = BrokerRemoval(state, plan_moves(state, BalanceLimits()), frozenset([MOVED]))
    found = explained("remove-broker", node=1, removal=removal)
    assert only(found) == ("removal", "ottla broker remove 1")
    assert "1 partition of broker 1 must move" in found.causes[0].summary
    assert found.causes[0].evidence[0].value == 1


def test_a_change_that_its_command_refuses_is_refused_with_the_reason() -> None:
    alone = survey(partition(1, leader=1))
    voters = [replica(101), replica(102, fetched_ms_ago=10**6), replica(103)]
    for change, node, facts, reason in (
        ("remove-broker", 1, {"refusal": "broker 1 cannot be emptied"}, "cannot be emptied"),
        ("drain-broker", 1, {"survey": alone}, "would be without leader"),
        ("drain-broker", 9, {"survey": alone}, "there is no broker 9"),
        ("remove-voter", 9, {"survey": survey(voters=voters)}, "controller 9 is no voter"),
        ("remove-voter", 101, {"survey": survey(voters=voters)}, "there is no majority"),
        ("remove-voter", 1, {"survey": survey(failure="down")}, "controllers do not answer"),
        ("add-voter", 9, {"survey": survey(voters=voters)}, "no controller 9 follows"),
    ):
        found = explained(change, node=node, **facts)
        assert only(found) == ("refused", "")
        assert reason in found.causes[0].summary


def test_brokers_of_others_carry_out_no_plan() -> None:
    other = replace(survey(), serves_own_requests=False)
    for change in ("balance", "remove-broker", "drain-broker"):
        found = explained(change, node=1, survey=other)
        assert only(found) == ("refused", "")
        assert "only brokers of Ottla" in found.causes[0].summary


def test_a_drain_lists_the_leaderships() -> None:
    found = explained("drain-broker", node=1, survey=survey(partition(1, 2, leader=1)))
    assert only(found) == ("leaderships", "ottla broker drain 1")
    assert found.as_json["tables"]["leaderships"] == [
        {"topic": "t", "partition": 0, "replicas in sync": "1,2"}
    ]
    assert explained("drain-broker", node=2, survey=survey()).verdict is Conclusion.CLEAR


@pytest.mark.parametrize("change", ["add-voter", "remove-voter"])
def test_a_change_of_the_voters_names_its_command(change: str) -> None:
    quorum = survey(
        voters=[replica(101), replica(102), replica(103)], observers=[replica(104, lag=7)]
    )
    if change == "add-voter":
        assert only(explained(change, node=104, survey=quorum)) == (
            "addition",
            "ottla quorum add 104@h:104:dir104",
        )
        assert explained(change, node=101, survey=quorum).verdict is Conclusion.CLEAR
    else:
        found = explained(change, node=103, survey=quorum)
        assert only(found) == ("removal", "ottla quorum remove 103")
        assert len(found.as_json["tables"]["controllers"]) == 4
