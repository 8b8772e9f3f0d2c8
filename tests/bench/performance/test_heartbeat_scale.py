"""Heartbeats of many brokers, on a small number of them."""

from typing import Any

from ottla.bench.performance.heartbeat_scale import simulated
from ottla.jepsen.world.whole.cluster import quiet_nodes
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time


def test_brokers_that_send_heartbeats_stay_unfenced_and_silent_ones_are_fenced() -> None:
    async def run(loop: Loop) -> dict[str, Any]:
        return await simulated(loop, 3)

    with quiet_nodes():
        row = run_in_virtual_time(run, seed=1)
    assert row["brokers"] == 3
    assert row["handler_us"] > 0
