"""The fault limits refuse faults that no replicated log can tolerate, and allow all others."""

from typing import Any

import pytest

from ottla.jepsen.processes.fault_limits import FaultLimits
from ottla.jepsen.processes.nodes import NodeRole, ProcessState


class Member:
    """A node, as the fault limits see it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.role = NodeRole.BROKER if name.startswith("b") else NodeRole.CONTROLLER
        self.state = ProcessState.RUNNING
        self.held_by: str | None = None


class Links:
    """A network, as the fault limits see it."""

    is_well = True


class World:
    """A cluster that is in whatever state a test wants."""

    def __init__(self) -> None:
        self.nodes = {name: Member(name) for name in ("c1", "c2", "c3", "b1", "b2", "b3")}
        self.brokers = [self.nodes[name] for name in ("b1", "b2", "b3")]
        self.network = Links()
        self.reason: str | None = None
        self.while_asked: Any = lambda: None

    async def reason_not_full(self) -> str | None:
        """Return the reason that the test has set."""
        self.while_asked()
        return self.reason

    async def is_isr_full(self) -> bool:
        """Return whether the test has set no reason."""
        return self.reason is None

    def some(self, names: str) -> list[Any]:
        """Return nodes by their names."""
        return [self.nodes[name] for name in names.split()]


def make(*, flush: bool = False) -> tuple[World, FaultLimits]:
    """Return a healthy cluster and its fault limits."""
    world: Any = World()
    return world, FaultLimits(world, flush=flush)


async def test_one_broker_may_lose_power_while_all_are_in_sync() -> None:
    world, fault_limits = make()
    assert await fault_limits.reason_not_to_damage(world.some("b1")) is None
    assert fault_limits.damaged is not None
    assert fault_limits.damaged.name == "b1"


@pytest.mark.parametrize("victims", ["b1 b2", "b1 b2 b3", "c1 b1 b2"])
async def test_two_brokers_may_not_lose_power_at_once_unless_they_flush(victims: str) -> None:
    world, fault_limits = make()
    assert await fault_limits.reason_not_to_damage(world.some(victims)) is not None
    assert fault_limits.damaged is None
    world, fault_limits = make(flush=True)
    assert await fault_limits.reason_not_to_damage(world.some(victims)) is None


async def test_controllers_may_lose_power_all_together_at_any_time() -> None:
    world, fault_limits = make()
    world.reason = "not full"
    world.network.is_well = False
    assert await fault_limits.reason_not_to_damage(world.some("c1 c2 c3")) is None
    assert fault_limits.damaged is None


async def test_power_is_not_cut_while_a_replica_is_behind() -> None:
    world, fault_limits = make()
    world.reason = "not full"
    assert await fault_limits.reason_not_to_damage(world.some("b1")) == "not full"


async def test_until_the_damaged_has_all_again_no_other_broker_is_killed_or_damaged() -> None:
    world, fault_limits = make()
    assert await fault_limits.reason_not_to_damage(world.some("b1")) is None
    world.reason = "not full"
    assert await fault_limits.reason_not_to_kill(world.some("b2")) is not None
    assert await fault_limits.reason_not_to_damage(world.some("b2")) is not None
    assert await fault_limits.reason_not_to_kill(world.some("b1 c1 c2 c3")) is None
    world.reason = None
    assert await fault_limits.reason_not_to_kill(world.some("b2 b3")) is None


@pytest.mark.parametrize(
    "state", [ProcessState.PAUSED, ProcessState.STARTING, ProcessState.DEAD, ProcessState.STOPPED]
)
async def test_a_broker_that_is_not_well_keeps_the_others_power_on(state: ProcessState) -> None:
    world, fault_limits = make()
    world.nodes["b2"].state = state
    assert await fault_limits.reason_not_to_damage(world.some("b1")) is not None


async def test_power_is_not_cut_while_faulty_links_hide_the_in_sync_replicas() -> None:
    world, fault_limits = make()
    world.network.is_well = False
    assert await fault_limits.reason_not_to_damage(world.some("b1")) is not None


async def test_what_happened_while_the_cluster_was_asked_counts() -> None:
    world, fault_limits = make()

    def kill_another() -> None:
        world.nodes["b3"].held_by = "kill"

    world.while_asked = kill_another
    assert await fault_limits.reason_not_to_damage(world.some("b1")) is not None
    assert fault_limits.damaged is None


async def test_bytes_that_are_flipped_are_lost_even_to_those_who_flush() -> None:
    world, fault_limits = make(flush=True)
    victim: Any = world.nodes["b1"]
    assert await fault_limits.reason_not_to_corrupt(victim) is None
    other: Any = world.nodes["b2"]
    world.reason = "not full"
    assert await fault_limits.reason_not_to_kill([other]) is not None


async def test_a_node_is_chosen_by_one_nemesis_at_a_time() -> None:
    world, fault_limits = make()
    with fault_limits.holding(world.some("b1 c1"), "kill"):
        assert [node.name for node in fault_limits.free()] == ["c2", "c3", "b2", "b3"]
        with pytest.raises(AssertionError):
            fault_limits.hold(world.some("b1"), "pause")
    assert len(fault_limits.free()) == 6
