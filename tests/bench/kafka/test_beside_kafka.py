"""`ottla bench beside`: its rows, their measurements, and the report."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.bench.kafka import beside_kafka
from ottla.bench.kafka.beside_kafka import (
    EQUAL_SETTINGS,
    IS_HIGHER_BETTER,
    ROWS,
    BesideServer,
    BesideWork,
    ComparisonRow,
    check_appended,
    measured,
    prepare,
    rows_of,
)
from ottla.bench.load import Load
from ottla.bench.result import Result
from ottla.cli.main import run
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, RefusedError

SECONDS = {"ottla:1": 1.0, "kafka:1": 2.0}


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Two fake servers, and a row that takes Kafka twice as long."""
    settings: list[dict[str, str]] = []

    @contextmanager
    def opened(jars: Path, given: dict[str, str]) -> Iterator[tuple[str, dict[str, BesideServer]]]:
        settings.append(given)
        pids = (os.getpid(),)
        yield (
            "4.3.0",
            {
                "ottla": BesideServer("ottla:1", pids),
                "kafka": BesideServer("kafka:1", pids),
            },
        )

    def produce(load: Load, work: Any) -> Result:
        return Result("produce", load.count, 0, SECONDS[load.bootstrap])

    monkeypatch.setattr(beside_kafka, "open_servers", opened)
    monkeypatch.setattr(beside_kafka, "prepare", lambda *_: None)
    monkeypatch.setitem(ROWS, "produce", ComparisonRow(produce, ("per_second",)))
    return settings


def test_figures_of_both_servers_are_reported(
    servers: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rows=produce", "--count=500", "--rounds=2", "--set=num.partitions=3"]

    assert run(["bench", "beside", "--kafka=jars", *words, "--format=json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["kafka_version"], found["rounds"]) == ("4.3.0", 2)
    assert found["rows"] == [
        {
            "row": "produce",
            "figure": "per_second",
            "ottla": {"median": 500, "lowest": 500, "highest": 500},
            "kafka": {"median": 250, "lowest": 250, "highest": 250},
            "ratio": 2.0,
            "verdict": "better",
        }
    ]
    assert servers == [{**EQUAL_SETTINGS, "num.partitions": "3"}]


def test_the_table_names_version_rounds_and_the_machines_load(
    servers: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "beside", "--kafka=jars", "--rows=produce", "--rounds=2"]) == 0
    assert "Kafka 4.3.0; 2 of 2 rounds; load of the machine" in capsys.readouterr().out


def test_a_time_limit_without_a_complete_round_is_refused(
    servers: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--kafka=jars", "--rows=produce", "--timeout=-1"]

    assert run(["bench", "beside", *words]) == 1
    assert "no round was complete in -1 s" in capsys.readouterr().err


@pytest.mark.parametrize(("appended", "code"), [(20, 0), (19, 1)])
def test_small_produces_that_were_not_appended_are_no_figure(
    servers: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    appended: int,
    code: int,
) -> None:
    monkeypatch.setitem(ROWS, "produce-requests", ROWS["produce"])
    monkeypatch.setattr(beside_kafka, "library", lambda name: FakeConfluent(appended))
    words = ["--rows=produce-requests", "--requests=10", "--rounds=2"]

    assert run(["bench", "beside", "--kafka=jars", *words]) == code
    assert ("at ottla:1 has 19 records of 20" in capsys.readouterr().err) == (code == 1)


class FakeConfluent:
    """The part of confluent-kafka that looks up the end of a log."""

    def __init__(self, end_offset: int) -> None:
        self._end_offset = end_offset

    def TopicPartition(self, topic: str, partition: int) -> tuple[str, int]:  # noqa: N802
        return topic, partition

    def Consumer(self, settings: dict[str, str]) -> "FakeConfluent":  # noqa: N802
        return self

    def get_watermark_offsets(self, at: tuple[str, int], timeout: float) -> tuple[int, int]:
        assert at == ("beside-produce-requests", 0)
        return 0, self._end_offset

    def close(self) -> None:
        pass


@pytest.mark.parametrize("row", ROWS)
async def test_each_row_measures_all_its_figures(row: str) -> None:
    load = Load(bootstrap="", count=200)
    work = BesideWork(load=load, singles=10, requests=50, connections=2, in_flight=2)

    async with open_test_cluster() as cluster:
        server = BesideServer(cluster.bootstrap, (os.getpid(),))
        await trio.to_thread.run_sync(prepare, row, server, work)
        found = await trio.to_thread.run_sync(measured, row, server, work)
        if row == "produce-requests":
            await trio.to_thread.run_sync(partial(check_appended, server, work, at_least=50))
            with pytest.raises(RefusedError, match="has 50 records of 51"):
                await trio.to_thread.run_sync(partial(check_appended, server, work, at_least=51))

    assert tuple(found) == ROWS[row].figures
    assert all(value > 0 for name, value in found.items() if name != "broker_cpu_us_each")


def test_an_unknown_row_is_named() -> None:
    assert rows_of("e2e,produce,e2e") == ["e2e", "produce"]
    with pytest.raises(ConfigError, match="has no 'fly'"):
        rows_of("produce,fly")


def test_every_figure_of_every_row_has_a_direction() -> None:
    assert {name for row in ROWS.values() for name in row.figures} == set(IS_HIGHER_BETTER)
