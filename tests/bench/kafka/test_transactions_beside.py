"""`ottla bench transactions`: its measurements and its report."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.bench.kafka import transactions_beside
from ottla.bench.kafka.beside_kafka import BesideServer
from ottla.bench.kafka.transaction_loads import TransactionLoad
from ottla.bench.kafka.transactions_beside import ROWS, SHARES, TransactionRow
from ottla.bench.result import Result
from ottla.cli.main import run

RATES = {("ottla:1", 100): 100, ("ottla:1", 90): 90, ("kafka:1", 100): 50, ("kafka:1", 90): 40}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fake servers, by their number of brokers, and rows of known rates."""
    brokers_seen: list[int] = []

    @contextmanager
    def servers(
        jars: Path | None, brokers: int
    ) -> Iterator[tuple[str | None, dict[str, BesideServer]]]:
        brokers_seen.append(brokers)
        pids = (os.getpid(),)
        found = {"ottla": BesideServer("ottla:1", pids)}
        if jars is not None:
            found["kafka"] = BesideServer("kafka:1", pids)
        yield None if jars is None else "4.3.0", found

    def row(rate: int) -> TransactionRow:
        def load(asked: TransactionLoad) -> Result:
            return Result("r", RATES[asked.bootstrap, rate], 0, 1.0, [3.0])

        return TransactionRow(load, 1, ("per_second", "latency_p99_ms"))

    monkeypatch.setattr(transactions_beside, "_open", servers)
    monkeypatch.setattr(transactions_beside, "prepare", lambda *_, **__: None)
    for name in list(ROWS):
        if name not in ("idempotent-1", "100ms-1"):
            monkeypatch.delitem(ROWS, name)
    monkeypatch.setitem(ROWS, "idempotent-1", row(100))
    monkeypatch.setitem(ROWS, "100ms-1", row(90))
    return brokers_seen


def test_both_servers_are_compared_fresh_and_warm(
    opened: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "transactions", "--kafka=jars", "--rounds=2", "--format=json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["kafka_version"], found["rounds"]) == ("4.3.0", 2)
    for part in ("fresh", "warm"):
        row = found[part][0]
        assert (row["row"], row["figure"], row["ratio"]) == ("idempotent-1", "per_second", 2.0)
    assert found["shares"] == {"100ms-1": {"ottla": 0.9, "kafka": 0.8}}


def test_a_cluster_is_measured_without_kafka(
    opened: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "transactions", "--brokers=3", "--rounds=2"]) == 0

    text = capsys.readouterr().out
    assert opened == [3]
    assert "100ms-1 by idempotent-1, ottla: 0.90" in text
    assert "without Kafka; 2 warm rounds" in text


def test_kafka_has_one_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "transactions", "--kafka=jars", "--brokers=3"]) == 1
    assert "must be 1 beside Kafka" in capsys.readouterr().err


def test_shares_are_of_rows_that_there_are() -> None:
    assert {*SHARES, *SHARES.values()} <= ROWS.keys()
