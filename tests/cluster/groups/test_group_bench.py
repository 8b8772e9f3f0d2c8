"""The group benchmarks finish, and count what their names announce."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.cluster


def bench(cluster: Any, *words: str) -> dict[str, Any]:
    """Run a measurement; return its figures."""
    figures: dict[str, Any] = json.loads(
        cluster.ottla("bench", *words, "--connections=10", "--format=json").stdout
    )
    return figures


def test_commits_are_measured_and_kept(cluster: Any) -> None:
    assert bench(cluster, "commits", "--count=200")["count"] == 200
    assert bench(cluster, "commits", "--count=200", "--members")["count"] == 200
    groups = cluster.ottla("group", "list").stdout
    assert "ottla-bench-" in groups


def test_a_rebalance_is_measured_round_by_round(cluster: Any) -> None:
    figures = bench(cluster, "rebalance", "--rounds=2")
    assert figures["members"] == 10
    for name in ("first", "again"):
        assert len(figures[f"{name}_s_all"]) == 2
        assert figures[f"{name}_s_median"] > 0
