"""Figures of several runs of one client, and the work of every client."""

import json
import sys

import pytest
import trio

from ottla.bench.client_work import WORKS
from ottla.bench.clients import CLIENTS, KINDS, summary
from ottla.client import open_producer
from ottla.client.testing import open_test_cluster


def test_medians_are_reported_of_each_runs_own_rate() -> None:
    runs = [
        {"seconds": 1.0, "cpu_s": 0.5, "count": 100_000},
        {"seconds": 2.0, "cpu_s": 0.4, "count": 100_000},
        {"seconds": 50.0, "cpu_s": 9.0, "count": 100_000},
    ]

    assert summary(runs) == {"per_second": 50_000, "cpu_us_each": 5.0}


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
            assert reported["cpu_s"] > 0
