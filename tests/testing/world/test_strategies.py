"""Strategies of clusters and faults: chosen kinds, fixed seeds, and readable failures."""

from typing import Any

import hypothesis
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

import ottla.testing.world as world
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
    @given(world.cluster(), world.faults(kills=True))
    def test(plan: world.ClusterPlan, faults: world.FaultSchedule) -> None:
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
