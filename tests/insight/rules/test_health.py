"""Findings of `ottla status` about a cluster: each problem, with its cure."""

from typing import Any

from ottla.insight.facts.survey_driver import (
    Survey,
    SurveyedBroker,
    SurveyedPartition,
    SurveyedQuorum,
    SurveyedReplica,
)
from ottla.insight.rules.health import (
    CLOCKS_APART_MS_MAX,
    SILENT_AFTER_MS,
    broker_standing,
    is_under_min_insync,
    reasons_of,
    warnings_of,
)

HOUR_MS = 3_600_000


def voter(id_: int, fetched_ms_ago: int | None = 10) -> SurveyedReplica:
    return SurveyedReplica(
        id=id_,
        directory_id="d",
        address=f"h:{id_}",
        log_end_offset=7,
        lag=0,
        last_fetch_ms_ago=fetched_ms_ago,
        last_caught_up_ms_ago=fetched_ms_ago,
    )


def quorum(*voters: SurveyedReplica, **changes: Any) -> SurveyedQuorum:
    return SurveyedQuorum(leader_id=101, epoch=3, voters=[voter(101, 0), *voters], **changes)


def broker(id_: int, **changes: Any) -> SurveyedBroker:
    fields = {"host": "h", "port": 9092, "rack": None, "is_fenced": False, "state": "RUNNING"}
    return SurveyedBroker(**{"id": id_, **fields, **changes})


def partition(
    *isr: int, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3)
) -> SurveyedPartition:
    return SurveyedPartition(
        name="t-0", topic="t", leader_id=leader, replicas=list(replicas), isr=list(isr)
    )


def survey(**changes: Any) -> Survey:
    whole: dict[str, Any] = {
        "cluster_id": "c",
        "quorum": quorum(voter(102)),
        "brokers": [broker(1), broker(2)],
        "partitions": [partition(1, 2, 3)],
        "min_insync": {},
    }
    return Survey(**{**whole, **changes})


def test_a_cluster_without_fault_has_no_reason_and_no_warning() -> None:
    assert reasons_of(survey()) == []
    assert warnings_of(survey()) == []


def test_the_warnings_of_a_broker_are_the_clusters_and_no_reason() -> None:
    found = survey(brokers=[broker(1, warnings=["log directory /d fills up"]), broker(2)])

    assert reasons_of(found) == []
    assert warnings_of(found) == ["broker 1: log directory /d fills up"]


def test_the_disk_of_the_active_controller_is_a_reason_or_a_warning() -> None:
    full = survey(quorum=quorum(problems="controller 101: is full\n1 MiB of 2 MiB is left"))
    filling = survey(quorum=quorum(warnings="controller 101: fills up"))

    assert reasons_of(full) == ["controller 101: is full", "1 MiB of 2 MiB is left"]
    assert reasons_of(filling) == []
    assert warnings_of(filling) == ["controller 101: fills up"]


def test_a_voter_that_is_silent_for_too_long_is_named() -> None:
    found = survey(quorum=quorum(voter(102, SILENT_AFTER_MS), voter(103, SILENT_AFTER_MS + 1)))

    assert reasons_of(found) == ["controller 103 has not been heard of for 4 s; start it again"]


def test_a_voter_that_was_never_heard_of_is_named() -> None:
    assert reasons_of(survey(quorum=quorum(voter(103, None)))) == [
        "controller 103 has not been heard of since 101 leads"
    ]


def test_a_quorum_without_majority_is_said_with_the_cure() -> None:
    (reason,) = reasons_of(survey(quorum=SurveyedQuorum(failure="no answer in 5 s")))

    assert reason == (
        "the controller quorum does not answer (no answer in 5 s); "
        "start a majority of its controllers"
    )


def test_what_controllers_refuse_one_another_is_passed_on() -> None:
    problems = "controller 103 was wiped"
    assert reasons_of(survey(quorum=quorum(voter(102), problems=problems))) == [problems]


def test_a_fenced_broker_that_is_gone_is_to_be_started() -> None:
    gone = broker(2, is_fenced=True, state="unreachable", failure="no process listens there")

    (reason,) = reasons_of(survey(brokers=[broker(1), gone]))

    assert reason.startswith("broker 2 is fenced")
    assert reason.endswith("start it again")
    assert broker_standing(gone) == "fenced"


def test_an_unreachable_advertised_address_is_reported_with_its_setting() -> None:
    lost = broker(2, state="unreachable", failure="cannot connect to 10.0.0.9:9092: no route")

    (reason,) = reasons_of(survey(brokers=[broker(1), lost]))

    assert "broker 2 lives" in reason
    assert "10.0.0.9:9092" in reason
    assert "advertised.listeners" in reason


def test_a_drained_broker_is_said_with_how_to_bring_it_back() -> None:
    drained = broker(2, is_fenced=True, state="DRAINED")

    (reason,) = reasons_of(survey(brokers=[broker(1), drained]))

    assert "'ottla broker drain 2 --undo'" in reason
    assert broker_standing(drained) == "drained"


def test_the_problems_that_a_broker_tells_are_reasons() -> None:
    ill = broker(2, problems=["partition t-0 is set aside: its batch at offset 5 is corrupt"])

    assert reasons_of(survey(brokers=[ill])) == [
        "broker 2: partition t-0 is set aside: its batch at offset 5 is corrupt"
    ]


def test_too_few_in_sync_replicas_are_worse_than_a_missing_one() -> None:
    found = survey(partitions=[partition(1), partition(1, 2)], min_insync={"t": 2})

    assert reasons_of(found) == [
        "1 partition with fewer replicas in sync than min.insync.replicas: t-0",
        "2 partitions under-replicated: t-0, t-0",
    ]


def test_a_topic_of_one_replica_needs_no_more_than_that() -> None:
    assert not is_under_min_insync(partition(1, replicas=(1,)), {"t": 2})


def test_a_partition_without_leader_is_named() -> None:
    (reason,) = reasons_of(survey(partitions=[partition(1, 2, 3, leader=-1)]))

    assert reason == "1 partition without leader: t-0"


def test_clocks_an_hour_apart_are_a_warning_and_no_fault() -> None:
    found = survey(
        quorum=quorum(clock_ahead_ms=5),
        brokers=[broker(1, clock_ahead_ms=0), broker(2, clock_ahead_ms=-HOUR_MS)],
    )

    (warning,) = warnings_of(found)

    assert warning.startswith("the clock of controller 101 is 60 min ahead of that of broker 2")
    assert reasons_of(found) == []


def test_a_controllers_clock_counts_as_a_brokers() -> None:
    found = survey(quorum=quorum(clock_ahead_ms=HOUR_MS), brokers=[broker(1, clock_ahead_ms=0)])

    assert "controller 101" in warnings_of(found)[0]


def test_a_clock_that_is_only_ours_is_nobodys_fault() -> None:
    ahead = [broker(1, clock_ahead_ms=HOUR_MS), broker(2, clock_ahead_ms=HOUR_MS + 40)]

    assert warnings_of(survey(quorum=quorum(clock_ahead_ms=HOUR_MS), brokers=ahead)) == []


def test_clocks_that_differ_by_less_than_asking_takes_are_one() -> None:
    apart = [broker(1, clock_ahead_ms=0), broker(2, clock_ahead_ms=CLOCKS_APART_MS_MAX)]

    assert warnings_of(survey(brokers=apart)) == []


THROTTLED = {"throttle.leader": 20e6, "throttle.follower": 20e6}


def test_a_throttle_that_nothing_needs_is_warned_of_with_the_cure() -> None:
    found = survey(brokers=[broker(1, metrics=THROTTLED), broker(2, metrics=THROTTLED), broker(3)])

    assert warnings_of(found) == [
        "broker 1, 2 still throttles replication to 20,000,000 bytes/s and nothing moves; "
        "'ottla topic reassign --verify' removes that"
    ]
    assert reasons_of(found) == []


def test_the_throttle_of_moves_under_way_is_none_left_over() -> None:
    brokers = [broker(1, metrics=THROTTLED)]

    assert warnings_of(survey(brokers=brokers, reassignment_count=1)) == []


def test_a_throttle_between_directories_is_judged_by_its_own_broker() -> None:
    moving = {"throttle.log.dirs": 5e6, "partitions.moving": 1.0}
    idle = {"throttle.log.dirs": 5e6, "partitions.moving": 0.0}
    found = survey(
        brokers=[broker(1, metrics=moving), broker(2, metrics=idle)], reassignment_count=1
    )

    (warning,) = warnings_of(found)

    assert warning.startswith(
        "broker 2 still throttles moves between log directories to 5,000,000 bytes/s"
    )
