"""/readyz of a broker."""

from typing import Any
from urllib.request import urlopen

import pytest
import trio

from ottla.broker.metrics.own_telemetry_driver import unready_reason
from ottla.client.testing import open_test_cluster
from ottla.model.ids import NodeId

READY: dict[str, Any] = {"is_fenced": False, "is_serving": True, "is_caught_up": True}


def test_a_running_unfenced_broker_with_current_metadata_is_ready() -> None:
    assert unready_reason("RUNNING", **READY) is None


@pytest.mark.parametrize("state", ["STARTING", "RECOVERY", "DRAINING", "DRAINED", "SHUTTING_DOWN"])
def test_a_broker_in_another_state_is_not(state: str) -> None:
    assert unready_reason(state, **READY) == f"The broker is {state}."


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"is_fenced": True}, "fenced"),
        ({"is_serving": False}, "not applied"),
        ({"is_caught_up": False}, "behind"),
    ],
)
def test_each_missing_part_has_its_sentence(wrong: dict[str, bool], reason: str) -> None:
    assert reason in str(unready_reason("RUNNING", **(READY | wrong)))


async def test_a_broker_that_serves_says_that_it_is_ready() -> None:
    settings = {"metrics.prometheus.port": "0", "metrics.prometheus.host": "127.0.0.1"}
    with trio.fail_after(60):
        async with open_test_cluster(settings=settings) as cluster:
            port = cluster.brokers[NodeId(1)].metrics_port

            def ask() -> tuple[int, bytes]:
                with urlopen(f"http://127.0.0.1:{port}/readyz") as response:
                    return response.status, response.read()

            assert await trio.to_thread.run_sync(ask) == (200, b"ok\n")
