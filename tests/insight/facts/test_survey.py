"""Conversion of the cluster's answers into the facts that are judged and printed."""

from dataclasses import replace
from uuid import UUID

import trio

from ottla.client import open_admin
from ottla.client.admin_parts.admin_cluster import QuorumReplica
from ottla.client.testing import open_test_cluster
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.survey_driver import (
    SurveyedBroker,
    SurveyedPartition,
    _replica,
    brokers_of,
    counts_of,
    survey,
)
from ottla.insight.rules.health import reasons_of
from ottla.insight.rules.summary import health_causes
from ottla.model.ids import ZERO_UUID, NodeId, Offset
from ottla.model.version import VERSION

NOW_MS = 1_700_000_000_000
LEADER = QuorumReplica(
    node=NodeId(101),
    directory_id=UUID(int=1 << 70),
    end_offset=Offset(100),
    last_fetch_ms=NOW_MS,
    last_caught_up_ms=NOW_MS,
)


def state(end_offset: int, fetched_ms: int) -> QuorumReplica:
    return QuorumReplica(
        node=NodeId(102),
        directory_id=ZERO_UUID,
        end_offset=Offset(end_offset),
        last_fetch_ms=fetched_ms,
        last_caught_up_ms=fetched_ms,
    )


def test_a_voter_is_behind_the_leaders_end_and_by_the_leaders_clock() -> None:
    found = _replica(state(90, NOW_MS - 40), LEADER, "h:1")

    assert (found.lag, found.last_fetch_ms_ago, found.address) == (10, 40, "h:1")


def test_a_voter_that_never_fetched_lacks_everything() -> None:
    found = _replica(state(-1, -1), LEADER, "")

    assert (found.lag, found.last_fetch_ms_ago) == (100, None)


def test_an_unknown_directory_is_nothing_and_no_zeros() -> None:
    assert _replica(state(1, 1), LEADER, "").directory_id == ""
    assert len(_replica(LEADER, LEADER, "").directory_id) == 22


def test_a_brokers_partitions_are_counted_where_it_leads_and_where_it_lags() -> None:
    broker = SurveyedBroker(id=2, host="h", port=1, rack=None, is_fenced=False)

    def partition(leader: int, replicas: list[int], isr: list[int]) -> SurveyedPartition:
        return SurveyedPartition(
            name="t-0", topic="t", leader_id=leader, replicas=replicas, isr=isr
        )

    found = counts_of(
        broker,
        [
            partition(2, [2, 3], [2]),
            partition(3, [2, 3], [3]),
            partition(3, [2, 3], [2, 3]),
            partition(1, [1, 3], [1]),
        ],
    )

    assert found == {"leaders": 1, "replicas": 3, "under_replicated": 1, "out_of_sync": 1}


async def test_a_secure_cluster_is_surveyed_with_the_login_of_the_admin_client() -> None:
    with trio.fail_after(60):
        async with (
            open_test_cluster(is_secure=True) as cluster,
            open_admin(cluster.bootstrap, security=cluster.security) as admin,
        ):
            (found,) = await brokers_of(admin)
            assert (found.failure, found.version) == ("", VERSION)


async def test_a_user_without_rights_learns_that_the_state_may_not_be_read() -> None:
    with trio.fail_after(60):
        async with (
            open_test_cluster(is_secure=True) as cluster,
            open_admin(cluster.bootstrap, security=cluster.security) as admin,
        ):
            assert cluster.security is not None
            mechanism = str(cluster.security.sasl_mechanism)
            await admin.set_password("bob", mechanism, "bobs-secret")
            security = replace(cluster.security, sasl_username="bob", sasl_password="bobs-secret")
            async with open_admin(cluster.bootstrap, security=security) as guest:
                found = await survey(guest)
            assert found.brokers[0].failure == ""
            assert found.quorum.failure == ""
            assert len(found.denials) == 2
            assert "the state of broker 1 may not be read (User:bob is not" in found.denials[1]
            assert reasons_of(found) == found.denials
            assert ClusterFacts(now_ms=0, survey=found).unknown == found.denials
            assert health_causes(found) == []
