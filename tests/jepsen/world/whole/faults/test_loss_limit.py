"""Faults stay within those that the protocol promises to tolerate."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.whole.faults.loss_limit import LossLimit
from ottla.jepsen.world.whole.machine import Trouble


@dataclass(eq=False)
class FakeMachine:
    trouble: Trouble | None = None
    start_count: int = 1
    has_bad_disk: bool = False


@dataclass
class FakeCluster:
    broker_machines: dict[int, FakeMachine] = field(
        default_factory=lambda: {1: FakeMachine(), 2: FakeMachine()}
    )
    is_in_sync: bool = True


def loss_limit_on(cluster: FakeCluster, *, is_flushed: bool = False) -> Any:
    return LossLimit(cast(Any, cluster), RareStates(), is_flushed=is_flushed)


def lost_directory() -> Trouble:
    return Trouble(
        name="/logs is gone", start_count=1, may_fail_to_start=False, has_lost_directory=True
    )


def test_no_other_broker_dies_until_a_wound_has_healed() -> None:
    cluster = FakeCluster()
    loss_limit = loss_limit_on(cluster)
    one, other = cluster.broker_machines.values()
    assert loss_limit.allow_loss(one)
    assert loss_limit.may_die(one)
    assert not loss_limit.may_die(other)
    one.start_count += 1
    assert loss_limit.may_die(other)


def test_a_broker_keeps_its_power_while_another_one_lacks_a_directory() -> None:
    """The other one has to start again, and to the controller that looks like a second wound."""
    cluster = FakeCluster()
    loss_limit = loss_limit_on(cluster)
    one, other = cluster.broker_machines.values()
    other.trouble = lost_directory()
    assert not loss_limit.allow_loss(one)
    other.trouble = None
    assert loss_limit.allow_loss(one)


def test_the_broker_that_lacks_a_directory_may_itself_lose_power() -> None:
    cluster = FakeCluster()
    one = cluster.broker_machines[1]
    one.trouble = lost_directory()
    assert loss_limit_on(cluster).allow_loss(one)


@pytest.mark.parametrize("has_trouble", [False, True])
def test_a_broker_that_flushes_what_it_acknowledges_may_always_lose_power(
    has_trouble: bool,
) -> None:
    cluster = FakeCluster(is_in_sync=False)
    one, other = cluster.broker_machines.values()
    other.trouble = lost_directory() if has_trouble else None
    assert loss_limit_on(cluster, is_flushed=True).allow_loss(one)
