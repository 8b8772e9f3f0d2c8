"""Runs of scenarios with a program of `ottla.client`: settling, exact kills and restarts."""

import asyncio
import gc
import sys
import weakref
from pathlib import Path

import pytest
import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import ottla.testing.world as world
from ottla.client.consumer import open_consumer
from ottla.client.producer import open_producer
from ottla.model.settings.client import ConsumerConfig, ProducerConfig

RECORDS = [world.Record(key=b"k%d" % n, value=b"%d" % n) for n in range(12)]
AT_SECOND_COMMIT = world.FaultSchedule((world.Kill(0, world.Request("OffsetCommit", 2)),))


async def copy_orders(bootstrap: str, commits_first: bool = False) -> None:
    config = ConsumerConfig(
        group_id="copiers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        poll_records_max=3,
    )
    async with (
        open_consumer(bootstrap, config) as consumer,
        open_producer(bootstrap, ProducerConfig(linger_ms=0)) as producer,
    ):
        consumer.subscribe(["orders"])
        while True:
            records = await consumer.poll(1.0)
            if commits_first and records:
                await consumer.commit()
            for record in records:
                await (await producer.send("copies", record.value, key=record.key))
            if not commits_first and records:
                await consumer.commit()


class CopyOrders:
    """Scenario that copies records with one or more instances."""

    def __init__(self, *, commits_first: bool = False, instance_count: int = 1) -> None:
        self.commits_first = commits_first
        self.names = [f"copier-{number}" for number in range(instance_count)]
        self.start_counts: list[int] = []

    async def __call__(self, w: world.World) -> None:
        await w.create_topic("orders", partition_count=2)
        await w.create_topic("copies")
        sent = await w.produce("orders", RECORDS)
        instances = [
            w.start(name, copy_orders, w.bootstrap, self.commits_first, runtime="trio")
            for name in self.names
        ]
        await w.settle()
        self.start_counts = [one.start_count for one in instances]
        assert [one.is_running for one in instances] == [False] * len(instances)
        world.at_least_once(sent, await w.read("copies"), key=lambda record: record.value)


def test_a_program_runs_until_its_group_has_no_lag() -> None:
    copying = CopyOrders(instance_count=2)

    report = world.run(copying, world.ClusterPlan(brokers=3, seed=1))

    assert copying.start_counts == [1, 1]
    assert report.seconds < 60


def test_a_kill_between_commit_and_work_loses_records_of_a_program_that_commits_first() -> None:
    correct = CopyOrders()
    world.run(correct, faults=AT_SECOND_COMMIT)
    assert correct.start_counts == [2]

    with pytest.raises(world.CheckFailedError) as caught:
        world.run(CopyOrders(commits_first=True), faults=AT_SECOND_COMMIT)

    notes = "\n".join(caught.value.__notes__)
    assert "kill copier-0 when its 2nd OffsetCommit request has reached the broker" in notes
    assert "Cluster: 1 broker, 1 controller, seed 0" in notes
    assert "copier-0" in notes and "killed" in str(caught.value)


def test_a_killed_program_that_never_committed_is_started_before_the_world_settles() -> None:
    kill = world.Kill(0, world.Request("Fetch", 1, "answered"), restart_after_s=400)
    copying = CopyOrders()

    world.run(copying, faults=world.FaultSchedule((kill,)))

    assert copying.start_counts == [2]


def test_equal_plans_and_faults_give_equal_runs() -> None:
    def digest(seed: int) -> str:
        plan = world.ClusterPlan(seed=seed)
        return world.run(CopyOrders(instance_count=2), plan, AT_SECOND_COMMIT).digest

    assert digest(3) == digest(3)
    assert digest(3) != digest(4)


async def fail_twice(folder: Path) -> None:
    lives = folder / "lives"
    count = int(lives.read_text()) if lives.exists() else 0
    lives.write_text(str(count + 1))
    await trio.sleep(0.5)
    if count < 2:
        raise LookupError(f"life {count}")


def test_a_program_that_fails_is_started_again_with_its_folder() -> None:
    async def scenario(w: world.World) -> None:
        folder = w.start("other", trio.sleep, 0, runtime="trio").directory
        instance = w.start("failing", fail_twice, folder, runtime="trio")
        await w.sleep(10)
        assert instance.start_count == 3
        assert not instance.is_running
        assert str(instance.failure) == "life 1"
        single = w.start("single", fail_always, runtime="trio", restarts=False)
        await w.sleep(10)
        assert single.start_count == 1

    world.run(scenario)


async def record_steps(steps: list[float]) -> None:
    try:
        while True:
            steps.append(trio.current_time())
            await trio.sleep(1)
    finally:
        steps.append(-1)


def test_a_killed_program_never_runs_again_and_a_paused_one_continues() -> None:
    steps: list[float] = []

    async def scenario(w: world.World) -> None:
        instance = w.start("steps", record_steps, steps, runtime="trio")
        await w.sleep(2.5)
        assert len(steps) == 3
        instance.pause(5)
        await w.sleep(4)
        assert len(steps) == 3
        await w.sleep(2)
        assert len(steps) >= 4
        instance.kill()
        await w.sleep(3)
        count = len(steps)
        assert not instance.is_running
        assert -1 not in steps
        instance.restart()
        await w.sleep(1.5)
        assert len(steps) == count + 2
        await instance.stop()
        assert steps[-1] == -1

    world.run(scenario)


def test_a_scenario_has_a_time_limit() -> None:
    async def scenario(w: world.World) -> None:
        await trio.sleep_forever()

    with pytest.raises(world.CheckFailedError, match="not ended after 5 virtual seconds"):
        world.run(scenario, timeout_s=5.0)


def test_a_program_that_does_not_settle_fails_with_its_reason() -> None:
    async def scenario(w: world.World) -> None:
        await w.create_topic("orders")
        w.start("failing", fail_always, runtime="trio")
        await w.settle(within_s=5.0)

    with pytest.raises(world.CheckFailedError, match="no consumer group exists; failing failed"):
        world.run(scenario)


async def fail_always() -> None:
    raise LookupError("no configuration")


def test_names_of_instances_are_checked() -> None:
    async def scenario(w: world.World) -> None:
        w.start("a", trio.sleep, 1, runtime="trio")
        for name in ("a", "", "broker-1", "scenario"):
            with pytest.raises(world.WorldError, match="in use or empty"):
                w.start(name, trio.sleep, 1, runtime="trio")

    world.run(scenario)


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_a_scenario_may_end_with_a_fault(end: str) -> None:
    async def scenario(w: world.World) -> None:
        instance = w.start("steps", record_steps, [], runtime="trio")
        await w.sleep(1.5)
        if end == "kill":
            instance.kill()
            instance.restart()
        else:
            instance.pause(60)

    world.run(scenario)


async def exit_by_itself(code: object) -> None:
    await asyncio.sleep(1)
    sys.exit(code)  # type: ignore[arg-type]  # any object is allowed


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def exit_in_trio() -> None:
    await trio.sleep(1)
    sys.exit(3)


def test_a_program_that_exits_or_cancels_itself_ends_alone() -> None:
    async def scenario(w: world.World) -> None:
        well = w.start("well", exit_by_itself, None)
        others = {
            "the program exited: no configuration": w.start(
                "a", exit_by_itself, "no configuration"
            ),
            "the program was cancelled by its own code": w.start("b", cancel_itself),
            "the program exited: 3": w.start("c", exit_in_trio, runtime="trio"),
        }
        await trio.sleep(2.5)
        assert (well.failure, well.start_count) == (None, 1)
        for sentence, one in others.items():
            assert str(one.failure) == sentence
            assert one.start_count > 1, "it is started again"

    world.run(scenario, world.ClusterPlan(seed=1))


class FailingDestructor:
    """Object whose destructor fails."""

    def __del__(self) -> None:
        raise ResourceWarning("not closed")


@pytest.mark.filterwarnings("error")
def test_a_destructor_that_fails_during_a_run_fails_no_test() -> None:
    async def scenario(w: world.World) -> None:
        FailingDestructor()
        await trio.sleep(1)

    world.run(scenario, world.ClusterPlan(seed=1))


async def crash(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap)
    await consumer.start()
    raise RuntimeError("the program has a bug")


async def copy_in_aiokafka(bootstrap: str) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        AIOKafkaConsumer("orders", bootstrap_servers=bootstrap) as consumer,
    ):
        async for record in consumer:
            await producer.send_and_wait("copies", record.value)


@pytest.mark.filterwarnings("error")
def test_destructors_of_failed_programs_do_not_complain_after_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: complaints.append(one.object))

    async def scenario(w: world.World) -> None:
        await w.create_topic("orders")
        one = w.start("a", crash, w.bootstrap)
        w.start("b", copy_in_aiokafka, w.bootstrap)
        await trio.sleep(5)
        assert "the program has a bug" in str(one.failure)
        raise ValueError("the scenario fails")

    with pytest.raises(ValueError, match="the scenario fails"):
        world.run(scenario, world.ClusterPlan(seed=1))
    gc.collect()
    assert complaints == []


def test_a_run_that_passed_leaves_nothing_of_its_world() -> None:
    worlds: list[weakref.ref[world.World]] = []

    async def scenario(w: world.World) -> None:
        await w.create_topic("orders")
        worlds.append(weakref.ref(w))

    report = world.run(scenario)

    assert report.timeline
    assert [one() for one in worlds] == [None]
