"""Figures of several runs of one client, and the work of every client."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.bench import clients
from ottla.bench.client_work import WORKS
from ottla.bench.clients import CLIENTS, KINDS, ClientInstallation, run_clients, summary
from ottla.client import open_producer
from ottla.client.testing import open_test_cluster


def test_medians_are_reported_of_each_runs_own_rate() -> None:
    runs = [
        {"seconds": 1.0, "cpu_s": 0.5, "thread_s": 0.4, "count": 100_000},
        {"seconds": 2.0, "cpu_s": 0.4, "thread_s": 0.4, "count": 100_000},
        {"seconds": 50.0, "cpu_s": 9.0, "thread_s": 5.0, "count": 100_000},
    ]

    assert summary(runs) == {"per_second": 50_000, "cpu_us_each": 5.0, "thread_share": 0.2}


def test_each_client_runs_in_its_own_interpreter_and_has_a_row_under_its_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    figures = '{"count": 8, "seconds": 2.0, "cpu_s": 1.0, "thread_s": 1.0}'
    other.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/calls\necho '{figures}'\n")
    other.chmod(0o755)
    monkeypatch.setattr(clients, "KINDS", ("produce",))
    topics: Any = SimpleNamespace(name="t", make=lambda _: None)

    found = run_clients(
        "127.0.0.1:9",
        topics=topics,
        count=8,
        rounds=1,
        progress=lambda _: None,
        clients={"compiled": ClientInstallation("ottla", str(other))},
    )

    assert found["produce 100 B, compiled"]["per_second"] == 4
    assert (tmp_path / "calls").read_text().splitlines() == [
        "-m ottla.bench.client_work ottla produce 127.0.0.1:9 t-100 8 100",
        "-m ottla.bench.client_work ottla produce 127.0.0.1:9 t-1000 2 1000",
    ]


def test_there_is_work_for_each_client_and_kind() -> None:
    assert {client for client, _ in WORKS} == set(CLIENTS)
    for client in ("ottla", "confluent-kafka"):
        assert {kind for one, kind in WORKS if one == client} == set(KINDS)


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_does_its_work_and_says_what_it_took(client: str) -> None:
    async with open_test_cluster() as cluster:
        async with open_producer(cluster.bootstrap) as producer:
            await producer.send("t", b"the topic is there")
        for kind in [kind for kind in KINDS if (client, kind) in WORKS]:
            command = [
                *(sys.executable, "-m", "ottla.bench.client_work"),
                *(client, kind, cluster.bootstrap, "t", "500", "100"),
            ]
            ended = await trio.run_process(command, capture_stdout=True)
            reported = json.loads(ended.stdout)
            assert reported["count"] == (500 if kind.startswith("produce") else 450)
            assert reported["seconds"] > 0
            assert 0 < reported["thread_s"] <= reported["cpu_s"]
