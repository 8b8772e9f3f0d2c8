"""Benchmarks of `ottla bench performance` that resemble everyday work."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.bench.kafka.paced_load import ACKNOWLEDGED, READ, UNPACED
from ottla.bench.load import Load, make_topic
from ottla.bench.local_cluster import RunningCluster, open_local_cluster
from ottla.bench.performance import long_polls
from ottla.bench.performance import work_rows as rows_of_work
from ottla.bench.performance.long_polls import LongPolls
from ottla.bench.performance.performance_rows import GOALS, ONE, THREE
from ottla.bench.performance.work_rows import (
    CLIENTS,
    PARTITIONS,
    RATES,
    SustainedRates,
    work_rows,
)
from ottla.bench.requests import RequestLatency
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.endpoints import parse_bootstrap

GROUPS = (RATES, PARTITIONS, CLIENTS)


class FakeLoad:
    """A load whose records were acknowledged and read at the times that a test sets."""

    waited: dict[str, list[RequestLatency]]
    sample_every = 20

    def __init__(self, bootstrap: str, topic: str, rate: int, linger_ms: float) -> None:
        assert rate == UNPACED

    def __enter__(self) -> "FakeLoad":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_the_sustained_rate_is_that_of_the_slowest_of_all_servers_and_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The window is 3 s, from 1 s to 4 s. Of each 20 records, one is sampled.
    clock = iter([1.0, 4.0, 1.0, 4.0])
    time = SimpleNamespace(perf_counter=lambda: next(clock), sleep=lambda _: None)
    for name, value in {"time": time, "PacedLoad": FakeLoad, "_make": lambda _: None}.items():
        monkeypatch.setattr(rows_of_work, name, value)
    rates = SustainedRates(linger_ms=5)
    cluster: Any = SimpleNamespace(bootstrap="127.0.0.1:1")
    within, before = RequestLatency(1.0, 1.5), RequestLatency(0.5, 0.1)

    FakeLoad.waited = {ACKNOWLEDGED: [within] * 900 + [before] * 9, READ: [within] * 600}
    rates.probe(cluster, 1)
    FakeLoad.waited = {ACKNOWLEDGED: [within] * 300, READ: [within] * 301}
    rates.probe(cluster, 1)

    assert rates.at(1.0) == 300 * 20 / 3
    assert rates.at(0.1) == 200


def test_every_figure_of_the_rows_has_a_goal_and_each_group_prepares_its_servers() -> None:
    for group in GROUPS:
        rows = [row for _, row in work_rows([group], ONE)]
        assert rows[0].prepare is not None
        assert GOALS[group]
    assert [row.name for _, row in work_rows(GROUPS, THREE)] == [
        "10% of the rate, linger.ms=5",
        "50% of the rate, linger.ms=5",
        "90% of the rate, linger.ms=5",
    ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with open_local_cluster(controllers=1, brokers=1) as found:
        yield found


def test_a_partition_whose_log_is_not_open_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    def partition_of(answer: bytes) -> SimpleNamespace:
        if codes:
            raise RefusedError(codes.pop(), "a Fetch was refused")
        return SimpleNamespace(high_watermark=7)

    monkeypatch.setattr(long_polls, "topic_id_of", lambda address, topic: UUID(int=1))
    monkeypatch.setattr(long_polls, "answer_to", lambda address, frame: b"")
    monkeypatch.setattr(long_polls, "_partition_of", partition_of)
    monkeypatch.setattr(long_polls, "ASK_AGAIN_S", 0.0)
    polls = LongPolls(("localhost", 9092), "t", partitions=1, consumers=1)
    assert polls._offsets == [7]


@pytest.mark.cluster
def test_each_record_ends_the_waits_of_all_consumers_of_its_partition(
    cluster: RunningCluster,
) -> None:
    make_topic(Load(bootstrap=cluster.bootstrap, topic="polled", partitions=3))
    cluster.wait_in_sync("polled")
    address = parse_bootstrap(cluster.bootstrap)[0]
    for _ in range(2):  # The second time, the consumers begin after earlier records.
        with LongPolls(address, "polled", partitions=3, consumers=7) as polls:
            latencies = polls.wake(500, 0.02)
        # Ten records: four in the partition of three consumers, six in those of two.
        assert len(latencies) == 4 * 3 + 6 * 2
        assert all(0 < latency < 10_000 for latency in latencies)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.parametrize("group", GROUPS)
def test_rows_measure_every_figure_on_a_cluster(
    group: str, cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {
        "SETTLE_S": 0.2,
        "PROBE_S": 1.0,
        "STEADY_S": 1.0,
        "LINGERS_MS": (5,),
        "PARTITION_COUNTS": (1, 20),
        "PARTITION_RECORDS": 2_000,
        "POLLING_CONSUMERS": 20,
        "PRODUCERS": 3,
        "PRODUCER_RECORDS": 300,
        "CATCH_UP_RECORDS": 2_000,
    }
    for name, value in small.items():
        monkeypatch.setattr(rows_of_work, name, value)
    rows = [row for _, row in work_rows([group], ONE)]
    for row in rows:
        if row.prepare is not None:
            row.prepare(cluster, 1)
    for row in rows:
        figures = row.run(cluster, 1)
        assert figures
        assert set(figures) <= set(GOALS[group])
        assert all(value > 0 for value in figures.values())
