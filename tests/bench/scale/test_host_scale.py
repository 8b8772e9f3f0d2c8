"""`ottla bench scale`: numbers of brokers, the table, and a small run."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.bench.local_cluster import open_local_cluster
from ottla.bench.scale import host_scale
from ottla.bench.scale.host_scale import (
    HEADERS,
    KINDS,
    broker_counts,
    measured_host,
    rows_of,
    run_scale,
)
from ottla.model.errors import ConfigError


def test_numbers_of_brokers_are_positive_and_bounded() -> None:
    assert broker_counts("1,2,64") == [1, 2, 64]
    for wrong in ("", "0", "65", "1,x", "-1"):
        with pytest.raises(ConfigError, match="use numbers up to 64"):
            broker_counts(wrong)


def test_each_value_of_a_number_of_brokers_is_in_its_column() -> None:
    figures = {"memory_mb": 91.6, "idle_cpu_percent": 2.34, "topic_cpu_ms": 1.234}
    for number, kind in enumerate(KINDS, start=1):
        figures |= {f"{kind}_per_second": 1000.4 * number, f"{kind}_cpu_us": 10.04 * number}
    (row,) = rows_of({2: figures})
    assert dict(zip(HEADERS, row, strict=True)) == {
        "BROKERS": 2,
        "MEMORY-MB": 92,
        "IDLE-CPU-%": 2.3,
        "PRODUCE/S": 1000,
        "PRODUCE-CPU-µS": 10.0,
        "FETCH/S": 2001,
        "FETCH-CPU-µS": 20.1,
        "METADATA/S": 3001,
        "METADATA-CPU-µS": 30.1,
        "TOPIC-CPU-MS": 1.23,
    }


def test_values_are_medians_of_rounds_in_which_clusters_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []

    @contextmanager
    def cluster(*, controllers: int, brokers: int) -> Iterator[int]:
        started.append(brokers)
        yield len(started)

    monkeypatch.setattr(host_scale, "open_local_cluster", cluster)
    monkeypatch.setattr(host_scale, "measured_host", lambda number, requests: {"value": number})
    progressed: list[int] = []
    found = run_scale([1, 2, 1], requests=5, rounds=3, progress=progressed.append)
    assert started == [1, 2, 1, 2, 1, 2]
    assert found == {1: {"value": 3}, 2: {"value": 4}}
    assert progressed == [1, 2, 3, 4, 5, 6]


@pytest.mark.cluster
@pytest.mark.long
def test_every_broker_of_a_cluster_gets_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SETTLE_S": 0.1, "IDLE_S": 0.2, "ADDED_TOPICS": 3}.items():
        monkeypatch.setattr(host_scale, name, value)
    with open_local_cluster(controllers=1, brokers=2) as cluster:
        figures = measured_host(cluster, 400)
    assert all(figures[f"{kind}_per_second"] > 0 for kind in KINDS)
    assert figures["topic_cpu_ms"] > 0
    assert figures["memory_mb"] > 10
