"""Plans of runs: their texts, their JSON form and the values they refuse."""

import json

import pytest

import ottla.testing.world as world

SCHEDULE = world.FaultSchedule(
    (
        world.Kill(1, world.Request("OffsetCommit", 3), restart_after_s=2.0),
        world.Stop(0, world.At(4.5)),
        world.Pause(0, world.Request("Fetch", 2, "answered"), seconds=30.0),
        world.LoseAnswer(0, world.Request("Produce", 11)),
        world.LoseAnswer(0, world.At(1.0)),
        world.SlowInstance(2, world.Mark("store.commit", 22), seconds=10.0, delay_s=0.5),
        world.Partition(0, 1, world.At(3.0)),
        world.KillBroker(0, world.Request("Heartbeat", 1)),
        world.FillDisk(2, world.At(0.0)),
    )
)
LINES = """\
kill b when its 3rd OffsetCommit request has reached the broker, before the response arrives; \
start it again after 2 s
stop a cleanly 4.5 s after the start; start it again after 1 s
pause a for 30 s when it has received the response to its 2nd Fetch request
lose the response to the 11th Produce request of a
lose the next response to a 1 s after the start
delay messages of a by up to 0.5 s for 10 s when it passes the mark 'store.commit' for the 22nd time
cut the network between a and broker 2 for 10 s 3 s after the start
kill broker 1 when instance 0: its 1st Heartbeat request has reached the broker, before the \
response arrives; start it again after 5 s
fill the disk of broker 3 for 10 s 0 s after the start"""


def test_a_schedule_is_readable() -> None:
    assert SCHEDULE.text(["a", "b"]) == LINES
    assert str(world.FaultSchedule()) == "no faults"


def test_a_schedule_and_a_plan_return_from_json() -> None:
    plan = world.ClusterPlan(brokers=3, controllers=3, seed=7, settings={"log.roll.ms": "1000"})
    text = json.dumps([plan.to_json(), SCHEDULE.to_json()])

    values, faults = json.loads(text)

    assert world.ClusterPlan.from_json(values) == plan
    assert world.FaultSchedule.from_json(faults) == SCHEDULE
    assert str(plan) == "3 brokers, 3 controllers, seed 7, log.roll.ms=1000"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: world.ClusterPlan(brokers=0), "1 to 9 brokers"),
        (lambda: world.ClusterPlan(controllers=2), "1, 3 or 5 controllers"),
        (lambda: world.ClusterPlan(seed=-1), "the seed is outside"),
        (lambda: world.Request("Fetsch"), "no request named 'Fetsch'"),
        (lambda: world.Request("Fetch", 0), "numbered from 1"),
        (lambda: world.Mark("x", 0), "numbered from 1"),
        (lambda: world.At(-1.0), "0 to 86400 seconds"),
        (lambda: world.Kill(0, world.At(1.0), restart_after_s=1e9), "0 to 86400 seconds"),
    ],
)
def test_impossible_values_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
