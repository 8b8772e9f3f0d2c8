"""Public frameworks that use aiokafka, unmodified, in a simulated world. Skipped without them.

FastStream 0.7.8 and kstreams 0.34.6 were used: `pip install 'faststream[kafka]' kstreams`.
"""

import asyncio
from typing import Any

import pytest

import ottla.testing.world as world
from ottla.testing.world.program_modules import Program

FAULTS = world.FaultSchedule(
    (
        world.Kill(0, world.Request("OffsetCommit", 2)),
        world.Stop(1, world.At(8)),
        world.Kill(1, world.Request("Produce", 5, "answered")),
        world.Pause(0, world.At(30), 20),
    )
)


def faststream_program(**options: Any) -> Program:
    faststream = pytest.importorskip("faststream")
    kafka = pytest.importorskip("faststream.kafka")

    async def copy_with_faststream(bootstrap: str) -> None:
        broker = kafka.KafkaBroker(bootstrap)
        app = faststream.FastStream(broker)

        async def copy(text: str) -> str:
            await asyncio.sleep(0.5)
            return text

        subscriber = broker.subscriber(
            "orders", group_id="copiers", auto_offset_reset="earliest", **options
        )
        subscriber(broker.publisher("copies")(copy))
        await app.run()

    return copy_with_faststream


def kstreams_program() -> Program:
    kstreams = pytest.importorskip("kstreams")
    backends = pytest.importorskip("kstreams.backends")

    async def copy_with_kstreams(bootstrap: str) -> None:
        engine = kstreams.create_engine(
            title="copier", backend=backends.Kafka(bootstrap_servers=[bootstrap])
        )

        async def copy(record: Any, stream: Any, send: Any) -> None:
            await asyncio.sleep(0.5)
            await send("copies", value=record.value)
            await stream.commit()

        # kstreams reads from the annotations how to call the function.
        copy.__annotations__.update(
            record=kstreams.ConsumerRecord, stream=kstreams.Stream, send=kstreams.types.Send
        )
        engine.add_stream(
            kstreams.Stream(
                "orders",
                func=copy,
                config={
                    "group_id": "copiers",
                    "auto_offset_reset": "earliest",
                    "enable_auto_commit": False,
                },
            )
        )
        await engine.start()
        try:
            await asyncio.Event().wait()
        finally:
            await engine.stop()

    return copy_with_kstreams


class CopyOrders:
    """Scenario in which two instances copy 48 records."""

    def __init__(self, program: Program) -> None:
        self.program = program

    async def __call__(self, w: world.World) -> None:
        await w.create_topic("orders", partition_count=3)
        await w.create_topic("copies")
        sent = []
        for first in range(0, 48, 16):
            sent += await w.produce("orders", [b"order %d" % n for n in range(first, first + 16)])
        for name in ("a", "b"):
            w.start(name, self.program, w.bootstrap)
        await w.settle(within_s=240)
        world.at_least_once(sent, await w.read("copies"), key=lambda record: record.value)


def test_kstreams_with_manual_commits_copies_every_record() -> None:
    report = world.run(CopyOrders(kstreams_program()), world.ClusterPlan(seed=1), FAULTS)
    assert report.timeline.as_text().count("killed") >= 1


def test_faststream_that_acknowledges_after_its_work_copies_every_record() -> None:
    faststream = pytest.importorskip("faststream")
    program = faststream_program(ack_policy=faststream.AckPolicy.ACK)
    report = world.run(CopyOrders(program), world.ClusterPlan(seed=1), FAULTS)
    assert report.timeline.as_text().count("killed") >= 1


def test_faststream_loses_a_record_by_default_if_it_is_killed_after_an_automatic_commit() -> None:
    # Its default for Kafka is AckPolicy.ACK_FIRST: aiokafka's automatic commits, which include the
    # record that is still being handled.
    faults = world.FaultSchedule((world.Kill(0, world.Request("OffsetCommit", 1)),))
    with pytest.raises(world.CheckFailedError, match="1 of 48 inputs has no output"):
        world.run(CopyOrders(faststream_program()), world.ClusterPlan(seed=1), faults)
