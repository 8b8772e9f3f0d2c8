"""Every workload runs on a real cluster, with both clients, and is judged valid."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.testing import ClusterUnderTest
from ottla.jepsen.history import History, Kind
from ottla.jepsen.workloads.load import CONFLUENT, OWN

BOTH = (OWN, OWN, CONFLUENT, CONFLUENT)
EXPECTED = {
    "queue": {"send", "poll", "assign", "subscribe"},
}


def counts(history: History) -> Counter[tuple[str, Kind]]:
    return Counter((operation.invoke.f, operation.kind) for operation in history.operations())


@pytest.mark.parametrize("name", sorted(EXPECTED))
async def test_a_small_run_without_faults_does_everything_and_fails_nothing(
    name: str, ottla_cluster: ClusterUnderTest, small_run: Callable[..., Any]
) -> None:
    run = small_run(name, ottla_cluster.bootstrap, BOTH)
    await run.drive(100)
    found = counts(run.history)
    assert {f for f, kind in found if kind is Kind.OK} >= EXPECTED[name]
    assert {f for f, kind in found if kind is Kind.INFO} <= {"crash"}
    assert run.workload.is_caught_up
    failed = [
        operation.completion
        for operation in run.history.operations()
        if operation.kind is Kind.FAIL and not operation.extra.get("refused")
    ]
    assert not failed
