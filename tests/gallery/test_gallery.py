"""The bugs of the gallery are found by property tests with default settings, and their fixed twins
pass them.

Plain runs start each fixed twin once, without faults, and search for the bugs of `SHORT`. With
`OTTLA_GALLERY=full`, all bugs are searched for, and each fixed twin is searched for
`FIXED_CPU_S`.
"""

import inspect
import os

import pytest

import ottla.testing.world as world
from tests.gallery.hunt import TWIN_SEED, described, run_once, search, search_twin
from tests.gallery.table import BUGS, Bug

IS_FULL = os.environ.get("OTTLA_GALLERY") == "full"
SHORT = ("retry_reorders", "commit_early")
"""Bugs of the short form: one that needs no fault, and one that needs a fault."""
SEED = 0
FAULT_COUNT_MAX = 5
FIXED_CPU_S = float(os.environ.get("OTTLA_GALLERY_CPU_S", "120"))
"""CPU seconds for which each fixed twin is searched for a failure."""

CUT_OFF = world.Partition(0, 0, world.At(0.5), 60.0)
FAILED_ONCE: dict[str, tuple[world.Fault, ...]] = {
    "commit_early": (
        world.Kill(0, world.At(0.0)),
        world.Partition(0, 0, world.At(0.13), 60.0),
        world.Pause(0, world.Request("JoinGroup", 4), 5.0),
    ),
    "offsets_outside": (world.Kill(1, world.Request("Produce", 2), restart_after_s=60.0), CUT_OFF),
    "shared_producer": (world.Kill(0, world.At(0.0)), CUT_OFF),
    "timestamp_dedup": (
        world.Kill(0, world.Request("OffsetCommit", 1)),
        world.KillBroker(0, world.Request("OffsetCommit", 1), restart_after_s=5.0),
    ),
    "wrong_partition": (world.Pause(0, world.Request("Produce", 8), 20.0),),
    "zombie": (world.Kill(0, world.At(0.01)),),
}
"""Faults at which a fixed twin failed once, by bug. In `offsets_outside`, the bug was in the
client: it let a removed member commit the offsets of its records as a new member. aiokafka does so
too, which is why `wrong_partition` commits positions, not given offsets."""

every_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)


def test_the_gallery_has_twenty_bugs_half_of_them_from_public_reports() -> None:
    assert len(BUGS) == len({bug.name for bug in BUGS}) == 20
    assert sum(bug.report is not None for bug in BUGS) >= 10


@every_bug
def test_each_bug_has_a_fixed_twin_with_the_same_parameters(bug: Bug) -> None:
    assert inspect.iscoroutinefunction(bug.broken)
    assert inspect.iscoroutinefunction(bug.fixed)
    assert inspect.signature(bug.broken) == inspect.signature(bug.fixed)


@every_bug
def test_a_fixed_twin_processes_everything_without_faults(bug: Bug) -> None:
    run_once(bug, bug.fixed, world.ClusterPlan(seed=SEED), world.FaultSchedule(()))


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.name in FAILED_ONCE], ids=lambda bug: bug.name
)
def test_a_fixed_twin_passes_with_faults_at_which_it_failed_once(bug: Bug) -> None:
    faults = world.FaultSchedule(FAILED_ONCE[bug.name])
    run_once(bug, bug.fixed, world.ClusterPlan(seed=SEED), faults)


@pytest.mark.parametrize(
    "bug",
    [bug for bug in BUGS if IS_FULL or bug.name in SHORT],
    ids=lambda bug: bug.name,
)
def test_a_bug_is_found_shrunk_and_replayed(bug: Bug) -> None:
    found = search(bug, bug.broken, SEED)
    assert found.failure is not None, described(bug, SEED, found)
    assert found.failure.check in bug.checkers, described(bug, SEED, found)
    assert len(found.faults.faults) <= FAULT_COUNT_MAX
    with pytest.raises(world.CheckFailedError) as again:
        run_once(bug, bug.broken, found.plan, found.faults)
    assert str(again.value) == str(found.failure)


@pytest.mark.skipif(not IS_FULL, reason="takes minutes; runs with OTTLA_GALLERY=full")
@every_bug
def test_a_fixed_twin_passes_with_faults(bug: Bug) -> None:
    twin = search_twin(bug, FIXED_CPU_S)
    assert not twin.failures, [described(bug, TWIN_SEED, found) for found in twin.failures]
