"""Violations that the end-of-process oracle recognises, without a cluster."""

import json
from collections import deque
from pathlib import Path

import trio

from tests.jepsen.oracles.end_of_process import BrokerHuntReport, BrokerPort, Neighbour, kept_frames
from tests.jepsen.oracles.hostile_frames import Frame, Manner

FRAME = Frame(3, 12, "one", Manner.WHOLE, b"\0\0\0\1a")


async def hang_up(stream: trio.SocketStream) -> None:
    await stream.receive_some(1)
    await stream.aclose()


async def test_a_neighbour_that_loses_its_connection_is_a_violation() -> None:
    report = BrokerHuntReport(7)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, hang_up, 0)
        port = listeners[0].socket.getsockname()[1]
        with trio.fail_after(60):
            await Neighbour(BrokerPort("b1", 1, f"127.0.0.1:{port}"), 0, report, 1).run()
        nursery.cancel_scope.cancel()
    (violation,) = report.violations
    assert violation.startswith("a neighbour at b1 was lost")


def test_a_broker_that_stays_fenced_is_a_violation_once() -> None:
    report = BrokerHuntReport(7)
    neighbour = Neighbour(BrokerPort("b1", 1, "localhost:1"), 0, report, 2)
    for unfenced_count in (2, 1, 2, 1):
        neighbour._judge_fences(unfenced_count)
    assert not report.violations
    for _ in range(5):
        neighbour._judge_fences(1)
    assert report.violations == ["b1 knows 1 of 2 brokers unfenced"]


def test_the_last_frames_are_kept_with_their_seed(tmp_path: Path) -> None:
    report = BrokerHuntReport(7, violations=["a process ended"], last_frames={"b1": deque([FRAME])})

    path = report.keep(tmp_path)

    assert json.loads(path.read_text())["seed"] == 7
    assert kept_frames(path) == {"b1": [FRAME]}
    assert "Metadata (3) v12" in str(report)
