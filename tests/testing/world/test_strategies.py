"""Strategies of clusters and faults: chosen kinds, fixed seeds, and readable failures."""

from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import ottla.testing.world as world
from ottla.testing.world.search import shrinking
from ottla.testing.world.search.strategies import SEED_VARIABLE
from tests.testing.world.test_run import CopyOrders

KINDS: dict[str, set[type]] = {
    "kills": {world.Kill},
    "rebalances": {world.Stop, world.Pause},
    "slow": {world.Pause, world.SlowInstance},
    "lost_answers": {world.LoseAnswer},
    "disk_full": {world.FillDisk},
    "brokers": {world.KillBroker, world.Partition},
}


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_only_the_chosen_kinds_are_drawn(name: str, data: st.DataObject) -> None:
    options: dict[str, Any] = {name: True, "count_max": 3}

    schedule = data.draw(world.faults(**options))

    assert len(schedule.faults) <= 3
    assert {type(fault) for fault in schedule.faults} <= KINDS[name]


@given(world.faults(marks=("store.commit",)))
def test_every_schedule_has_a_text_and_returns_from_json(schedule: world.FaultSchedule) -> None:
    assert world.FaultSchedule.from_json(schedule.to_json()) == schedule
    assert len(str(schedule).splitlines()) == max(1, len(schedule.faults))


def test_every_kind_is_drawn_without_a_choice() -> None:
    kinds: set[type] = set()

    @hypothesis.settings(max_examples=200, database=None)
    @hypothesis.seed(1)
    @given(world.faults())
    def collect(schedule: world.FaultSchedule) -> None:
        kinds.update(type(one) for one in schedule.faults)

    collect()

    assert kinds == {kind for chosen in KINDS.values() for kind in chosen}


def test_few_examples_repeat_the_faults_of_others() -> None:
    schedules: list[world.FaultSchedule] = []

    @world.settings(max_examples=100, database=None, phases=[Phase.generate])
    @hypothesis.seed(1)
    @given(world.faults(), world.cluster())
    def collect(schedule: world.FaultSchedule, plan: world.ClusterPlan) -> None:
        schedules.append(schedule)

    collect()

    assert len(set(schedules)) >= 85
    assert sum(not one.faults for one in schedules) <= 8


def test_faults_happen_to_each_of_two_and_three_instances_equally_often() -> None:
    indexes: list[int] = []

    @world.settings(max_examples=300, database=None, phases=[Phase.generate])
    @hypothesis.seed(1)
    @given(world.faults(kills=True))
    def collect(schedule: world.FaultSchedule) -> None:
        indexes.extend(fault.instance for fault in schedule.faults if isinstance(fault, world.Kill))

    collect()

    for instances in (2, 3):
        counts = [sum(one % instances == i for one in indexes) for i in range(instances)]
        assert max(counts) < 1.3 * min(counts)


def test_a_seed_of_the_environment_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "77")

    plan = hypothesis.find(world.cluster(brokers=3, settings={"log.roll.ms": "9"}), lambda _: True)

    assert plan == world.ClusterPlan(brokers=3, seed=77, settings={"log.roll.ms": "9"})


def test_a_program_that_commits_first_shrinks_to_one_kill() -> None:
    failing: list[world.FaultSchedule] = []

    @hypothesis.seed(1)
    @world.settings(
        max_examples=200,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
    )
    @given(world.faults(kills=True), world.cluster())
    def test(faults: world.FaultSchedule, plan: world.ClusterPlan) -> None:
        try:
            world.run(CopyOrders(commits_first=True), plan, faults)
        except world.CheckFailedError:
            failing.append(faults)
            raise

    with pytest.raises(world.CheckFailedError):
        test()

    (kill,) = failing[-1].faults
    assert isinstance(kill, world.Kill)
    assert kill.instance == 0


def test_shrinking_ends_with_the_simplest_failure_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "SHRINK_CPU_S", 0.0)
    failing: list[world.FaultSchedule] = []

    async def fail(w: world.World) -> None:
        raise LookupError

    @hypothesis.seed(1)
    @world.settings(database=None, report_multiple_bugs=False)
    @given(world.faults(kills=True), world.cluster())
    def test(faults: world.FaultSchedule, plan: world.ClusterPlan) -> None:
        if len(faults.faults) >= 3:
            failing.append(faults)
            world.run(fail, plan, faults)

    with pytest.raises(LookupError):
        test()

    assert len(set(failing[:1])) == 1
    assert failing[-1] == failing[0]
    assert len(failing) > 3  # simpler failures were rejected without a run
