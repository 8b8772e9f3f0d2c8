"""Plans of moves: hard rules in every intermediate state, even loads, few moves, reasons."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.balance.bands import Band
from ottla.model.balance.cluster_load import (
    BalanceLimits,
    BrokerLoad,
    ClusterLoad,
    PartitionLoad,
    Volume,
)
from ottla.model.balance.move_plan import BalancePlan, PlannedMove, UnmovedReason
from ottla.model.balance.planner import plan_moves
from ottla.model.ids import NO_NODE, NodeId, TopicPartition

GB = 1_000_000_000
EXACT = BalanceLimits(ignored_bytes=0)


def broker(number: int, **facts: Any) -> BrokerLoad:
    return BrokerLoad(id=NodeId(number), **facts)


def partition(number: int, *replicas: int, size: int = 0, **facts: Any) -> PartitionLoad:
    ids = tuple(map(NodeId, replicas))
    made = PartitionLoad(
        at=TopicPartition("t", number), replicas=ids, isr=ids, leader=ids[0], size_bytes=size
    )
    return replace(made, **facts)


def cluster(
    brokers: Iterable[BrokerLoad | int], *partitions: PartitionLoad, leaving: Iterable[int] = ()
) -> ClusterLoad:
    return ClusterLoad(
        brokers=tuple(one if isinstance(one, BrokerLoad) else broker(one) for one in brokers),
        partitions=partitions,
        leaving=frozenset(map(NodeId, leaving)),
    )


def after(load: ClusterLoad, plan: BalancePlan) -> ClusterLoad:
    """Return the cluster after all moves of a plan, each preferred leader leading."""
    targets = {move.at: move.after for move in plan.moves}
    return replace(
        load,
        partitions=tuple(
            replace(
                one,
                replicas=targets[one.at],
                isr=targets[one.at],
                leader=targets[one.at][0],
            )
            if one.at in targets
            else one
            for one in load.partitions
        ),
    )


def changes(plan: BalancePlan) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    return [(move.at.partition, move.before, move.after) for move in plan.moves]


def reasons(plan: BalancePlan) -> dict[str, str]:
    return {one.subject: one.reason for one in plan.unmoved}


def test_a_balanced_cluster_gets_an_empty_plan() -> None:
    load = cluster((1, 2, 3), *(partition(i, i % 3 + 1, (i + 1) % 3 + 1) for i in range(9)))
    plan = plan_moves(load)
    assert (plan.moves, plan.unmoved) == ((), ())


def test_a_new_broker_gets_its_share_of_the_bytes_in_few_moves() -> None:
    load = cluster((1, 2, 3), *(partition(i, i % 2 + 1, size=GB) for i in range(12)))
    plan = plan_moves(load)
    assert Counter(move.after for move in plan.moves) == {(3,): 4}
    assert plan.copied_bytes == 4 * GB
    assert {one.size_bytes for one in plan.after.values()} == {4 * GB}


def test_the_smallest_partition_that_is_sufficient_moves() -> None:
    sizes = (1, 5, 9, 30, 4, 4, 4)
    load = cluster((1, 2), *(partition(i, 1, size=size * GB) for i, size in enumerate(sizes)))
    plan = plan_moves(load, replace(EXACT, tolerance_percent=20))
    # 57 GB: the band of each broker is from 22.8 to 34.2 GB; only one partition reaches it alone.
    assert [move.size_bytes for move in plan.moves if move.reason.startswith("bytes")] == [30 * GB]


def test_leaders_change_by_elections_before_any_copy() -> None:
    load = cluster((1, 2, 3), *(partition(i, 1, 2) for i in range(8)), partition(8, 1, 2, size=GB))
    plan = plan_moves(load)
    copies = [bool(move.adding) for move in plan.moves]
    assert copies == sorted(copies)
    assert any(copies)
    assert not all(copies)


def test_only_leaders_are_uneven_and_nothing_is_copied() -> None:
    load = cluster((1, 2, 3), *(partition(i, 1, 2, 3, size=GB) for i in range(6)))
    plan = plan_moves(load)
    assert plan.copied_bytes == 0
    assert {one.leader_count for one in plan.after.values()} == {2}


def test_a_partition_led_by_another_than_the_preferred_replica_gets_an_election() -> None:
    load = cluster((1, 2), partition(0, 1, 2, leader=NodeId(2)), partition(1, 2, 1))
    assert changes(plan_moves(load)) == [(0, (1, 2), (1, 2))]


def test_replicas_that_share_a_host_are_separated_though_everything_is_even() -> None:
    brokers = [broker(one, rack="r", host=f"h{one // 2}") for one in range(4)]
    load = cluster(brokers, partition(0, 0, 1), partition(1, 2, 3))
    for move in plan_moves(load).moves:
        assert len({one // 2 for one in move.after}) == 2
    assert len(plan_moves(load).moves) == 2


def test_no_move_puts_two_replicas_on_a_rack() -> None:
    brokers = [broker(1, rack="a"), broker(2, rack="b"), broker(3, rack="a")]
    load = cluster(brokers, *(partition(i, 1, 2, size=GB) for i in range(6)))
    for move in plan_moves(load).moves:
        assert {*move.after} & {2}


def test_a_disk_gets_no_more_than_its_limit_even_while_nothing_has_left_it() -> None:
    nearly_full = broker(2, volumes=(Volume(100 * GB, 79 * GB),))
    empty = broker(1, volumes=(Volume(100 * GB, 10 * GB),))
    load = cluster((empty, nearly_full), *(partition(i, 1, size=GB) for i in range(10)))
    plan = plan_moves(load)
    assert plan.copied_bytes == GB
    assert (
        UnmovedReason("broker 1", "80 % more bytes than the mean; disks would become too full")
        in plan.unmoved
    )


def test_disks_of_different_sizes_get_bytes_in_proportion() -> None:
    brokers = (
        broker(1, volumes=(Volume(100 * GB, 0),)),
        broker(2, volumes=(Volume(300 * GB, 0),)),
    )
    load = cluster(brokers, *(partition(i, i % 2 + 1, size=GB) for i in range(40)))
    plan = plan_moves(load)
    assert 9 * GB <= plan.after[NodeId(1)].size_bytes <= 11 * GB


def test_a_cordoned_broker_gets_and_gives_nothing() -> None:
    load = cluster(
        (1, 2, broker(3, is_cordoned=True)), *(partition(i, 1, size=GB) for i in range(4))
    )
    plan = plan_moves(load)
    assert {one for move in plan.moves for one in move.after} <= {1, 2}


def test_a_leaving_broker_is_emptied_and_nothing_else_moves() -> None:
    load = cluster(
        (1, 2, 3, 4),
        partition(0, 4, 1, size=GB),
        partition(1, 1, 2, size=GB),
        partition(2, 1, 4, size=GB),
        leaving=[4],
    )
    plan = plan_moves(load)
    assert [move.at.partition for move in plan.moves] == [0, 2]
    assert all(4 not in move.after for move in plan.moves)
    assert plan.after[NodeId(4)].replica_count == 0
    assert [move.reason for move in plan.moves] == ["empties broker 4"] * 2


def test_a_leaving_broker_may_be_down() -> None:
    dead = broker(3, is_active=False)
    load = cluster(
        (1, 2, dead),
        partition(0, 3, 1, isr=(NodeId(1),), leader=NodeId(1), min_insync_replicas=2),
        leaving=[3],
    )
    assert changes(plan_moves(load)) == [(0, (3, 1), (2, 1))]
    leaderless = replace(load, partitions=(partition(0, 3, 1, leader=NO_NODE),))
    assert reasons(plan_moves(leaderless)) == {"t-0": "it has no leader"}


def test_a_leaving_broker_keeps_what_fits_nowhere_and_the_reason_is_given() -> None:
    load = cluster((1, 2), partition(0, 1, 2), leaving=[2])
    assert reasons(plan_moves(load)) == {
        "t-0": "empties broker 2; the other brokers have replicas of the same partitions"
    }


def test_a_full_disk_is_the_reason_where_the_other_brokers_have_replicas() -> None:
    full = broker(1, volumes=(Volume(100 * GB, 90 * GB),))
    load = cluster((full, 2, 3), partition(0, 2, 3, size=GB), leaving=[3])
    assert reasons(plan_moves(load)) == {"t-0": "empties broker 3; disks would become too full"}


def test_each_refused_partition_has_its_reason() -> None:
    dead = broker(4, is_active=False)
    all_ids = tuple(map(NodeId, (1, 2)))
    load = cluster(
        (1, 2, 3, dead),
        partition(0, 1, 2, is_moving=True),
        partition(1, 1, 2, leader=NO_NODE),
        partition(2, 1, 4),
        partition(3, 1, 2, isr=all_ids[:1], min_insync_replicas=2),
        partition(4, 1, 2, isr=all_ids[:1]),
        partition(5, 1, 2, has_throttle=True),
        partition(6, 1, 2, produce_bytes_per_s=6_000_000),
    )
    found = reasons(plan_moves(load, BalanceLimits(throttle_bytes_per_s=10_000_000)))
    assert found["t-0"] == "it is being reassigned"
    assert found["t-1"] == "it has no leader"
    assert found["t-2"] == "broker 4 is down"
    assert found["t-3"] == "it has fewer than 2 replicas in sync"
    assert found["t-4"] == "broker 2 is not in sync"
    assert "ottla topic reassign --verify" in found["t-5"]
    assert "would not catch up" in found["t-6"]


def test_nothing_moves_while_an_upgrade_is_under_way() -> None:
    load = cluster((broker(1, version="0.1.0"), broker(2, version="0.2.0")), partition(0, 1))
    plan = plan_moves(load)
    assert plan.is_refused
    assert plan.unmoved == (
        UnmovedReason(
            "",
            "the brokers run different releases (0.1.0 on broker 1; 0.2.0 on broker 2); "
            "finish the upgrade first",
        ),
    )


def test_nothing_moves_while_two_hosts_are_gone_but_two_brokers_of_one_host_may_be() -> None:
    two = [broker(one, host=f"h{one}", is_active=False) for one in (1, 2)]
    assert plan_moves(cluster([*two, 3], partition(0, 3))).is_refused
    one_host = [broker(one, host="h", is_active=False) for one in (1, 2)]
    assert not plan_moves(cluster([*one_host, 3], partition(0, 3))).is_refused


def test_nothing_moves_if_a_broker_does_not_report_its_logs() -> None:
    plan = plan_moves(cluster((1, broker(2, volumes=None)), partition(0, 1)))
    assert plan.is_refused


def test_a_plan_has_a_bound_and_says_so() -> None:
    load = cluster((1, 2), *(partition(i, 1, size=GB) for i in range(100)))
    plan = plan_moves(load, BalanceLimits(moves_max=7))
    assert len(plan.moves) == 7
    assert "limited" in reasons(plan)[""]


def test_the_search_has_a_bound_and_says_so() -> None:
    load = cluster((1, 2), *(partition(i, 1, size=GB) for i in range(100)))
    assert "limited" in reasons(plan_moves(load, BalanceLimits(work_max=20)))[""]


def test_what_remains_uneven_has_its_reason() -> None:
    load = cluster((1, 2), partition(0, 1, size=10 * GB))
    plan = plan_moves(load)
    assert plan.moves == ()
    assert plan.unmoved == (
        UnmovedReason("broker 1", "100 % more bytes than the mean; no single move improves it"),
        UnmovedReason("broker 2", "100 % fewer bytes than the mean; no single move improves it"),
    )


def test_the_duration_is_that_of_the_busiest_broker() -> None:
    move = PlannedMove(TopicPartition("t", 0), (NodeId(1),), (NodeId(2), NodeId(3)), 2 * GB)
    plan = BalancePlan(moves=(move,), before={}, after={})
    assert plan.seconds(1_000_000) == 4_000


# --- properties ------------------------------------------------------------------------------


@st.composite
def loads(draw: st.DrawFn, *, has_disks: bool = True) -> ClusterLoad:
    count = draw(st.integers(1, 6))
    brokers = []
    for number in range(1, count + 1):
        volumes: tuple[Volume, ...] = ()
        if has_disks:
            total = draw(st.sampled_from((0, 1_000, 4_000)))
            volumes = (Volume(total, draw(st.integers(0, total))),)
        brokers.append(
            broker(
                number,
                rack=draw(st.sampled_from((None, "a", "b", "c"))),
                host=draw(st.sampled_from((None, "h", "i"))),
                is_active=draw(st.sampled_from((True,) * 9 + (False,))),
                is_cordoned=draw(st.sampled_from((True, *(False,) * 5))),
                volumes=volumes,
            )
        )
    ids = range(1, count + 1)
    made = []
    for number in range(draw(st.integers(0, 14))):
        replicas = draw(st.permutations(ids))[: draw(st.integers(1, min(3, count)))]
        made.append(
            partition(
                number,
                *replicas,
                size=draw(st.integers(0, 300)),
                leader=NodeId(draw(st.sampled_from(replicas))),
                is_moving=draw(st.sampled_from((True, *(False,) * 9))),
            )
        )
    leaving = draw(st.sets(st.sampled_from(ids), max_size=1)) if draw(st.booleans()) else set()
    return cluster(brokers, *made, leaving=leaving)


def collisions(load: ClusterLoad, replicas: tuple[int, ...]) -> tuple[int, int]:
    domains = {one.id: one.domain for one in load.brokers}
    racks = [domains[NodeId(one)][0] for one in replicas]
    hosts = [domains[NodeId(one)] for one in replicas]
    return len(racks) - len(set(racks)), len(hosts) - len(set(hosts))


@given(loads())
def test_hard_rules_hold_in_every_intermediate_state(load: ClusterLoad) -> None:
    plan = plan_moves(load, EXACT)
    brokers = {one.id: one for one in load.brokers}
    partitions = {one.at: one for one in load.partitions}
    arriving: Counter[int] = Counter()
    assert len({move.at for move in plan.moves}) == len(plan.moves)
    for move in plan.moves:
        one = partitions[move.at]
        assert move.before == one.replicas
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert not one.is_moving
        for newcomer in move.adding:
            assert brokers[newcomer].is_active
            assert not brokers[newcomer].is_cordoned
            assert newcomer not in load.leaving
            arriving[newcomer] += move.size_bytes
        for gone in move.removing:
            assert not load.leaving or gone in load.leaving
        before, now = collisions(load, move.before), collisions(load, move.after)
        assert now[0] <= before[0]
        assert now[1] <= before[1] or now[0] < before[0]
    # No copy is credited with space that another move frees: any order, and all at once, is safe.
    for number, size in arriving.items():
        room = brokers[NodeId(number)].room_bytes(EXACT.disk_percent_max)
        assert room is None or size <= room


@given(loads(has_disks=False))
def test_a_second_plan_is_empty(load: ClusterLoad) -> None:
    done = after(load, plan_moves(load, EXACT))
    assert plan_moves(done, EXACT).moves == ()


@given(loads(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_its_input(load: ClusterLoad, rng: Random) -> None:
    brokers, partitions = list(load.brokers), list(load.partitions)
    rng.shuffle(brokers)
    rng.shuffle(partitions)
    shuffled = replace(load, brokers=tuple(brokers), partitions=tuple(partitions))
    assert plan_moves(shuffled, EXACT) == plan_moves(load, EXACT)


@given(loads(has_disks=False))
def test_no_goal_is_worse_than_before_unless_a_more_important_one_is_better(
    load: ClusterLoad,
) -> None:
    plan = plan_moves(load, EXACT)
    takers = [one.id for one in load.brokers if one.is_active and not one.is_cordoned]
    if load.leaving or plan.is_refused or not takers:
        return

    def badness(totals: Mapping[NodeId, tuple[int, int, int]], state: ClusterLoad) -> list[int]:
        found = [sum(sum(collisions(load, one.replicas)) for one in state.partitions)]
        for position in range(3):
            measured = {broker: total[position] for broker, total in totals.items()}
            band = Band(measured, dict.fromkeys(takers, 1), tolerance_percent=10)
            found.append(sum(map(band.excess, takers)))
        return found

    before, now = badness(plan.before, load), badness(plan.after, after(load, plan))
    is_only_election = all(move.before == move.after for move in plan.moves)
    assert now < before or (now == before and is_only_election)


@given(st.lists(st.integers(0, 1_000), min_size=2, max_size=5), st.integers(1, 500))
def test_the_effect_of_a_move_is_the_change_of_all_excesses(sizes: list[int], size: int) -> None:
    measured = {NodeId(number): one for number, one in enumerate(sizes)}
    weights = dict.fromkeys(measured, 1)
    band = Band(measured, weights, tolerance_percent=10)
    giver, taker = NodeId(0), NodeId(1)
    effect = band.effect(giver, taker, size)
    before = sum(map(band.excess, measured))
    measured[giver] -= size
    measured[taker] += size
    assert sum(map(band.excess, measured)) - before == effect


def test_the_reach_of_a_band_is_exact() -> None:
    measured = {NodeId(1): 130, NodeId(2): 70}
    band = Band(measured, dict.fromkeys(measured, 1), tolerance_percent=10)
    assert (band.over(NodeId(1)), band.under(NodeId(2))) == (20, 20)
    assert (band.under(NodeId(1)), band.over(NodeId(2))) == (0, 0)
    assert [band.percent(one) for one in measured] == [30, -30]


def test_a_hundred_thousand_partitions_cost_a_bounded_number_of_steps() -> None:
    made = [
        partition(i, *sorted({i % 4 + 1, (i * 7 + 1) % 4 + 1}), size=i % 1_000 * 1_000_000)
        for i in range(100_000)
    ]
    load = cluster((1, 2, 3, 4, 5), *made)
    plan = plan_moves(load, BalanceLimits(work_max=200_000))
    assert 0 < len(plan.moves) <= 1_000
    assert all(
        earlier.before != earlier.after or not later.adding
        for earlier, later in pairwise(plan.moves)
        if earlier.adding
    )
