"""Every workload runs on a real cluster, with both clients, and is judged valid."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.testing import ClusterUnderTest
from ottla.jepsen.checkers.table import CHECKERS, judge
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, History
from ottla.jepsen.workloads.load import CONFLUENT, OWN

BOTH = (OWN, OWN, CONFLUENT, CONFLUENT)
EXPECTED = {
    "queue": {"send", "poll", "assign", "subscribe"},
    "offsets": {"commit", "fetch"},
    "group": {"join", "leave", "poll", "commit", "fetch", "send", "assigned"},
    "metadata": {"create", "set-config", "describe"},
    "producer-ids": {"init"},
    "list-offsets": {"send", "end-offset"},
    "share": {"send", "join", "take", "acknowledge"},
    "transactions": {"init", "txn", "poll", "assign", "settle", "committed"},
}
OPERATIONS = {"producer-ids": 5, "transactions": 25}
"""librdkafka takes half a second for an id, and some for a transaction."""


def counts(history: History) -> Counter[tuple[str, EventKind]]:
    return Counter((operation.invoke.f, operation.kind) for operation in history.operations())


@pytest.mark.parametrize("name", sorted(EXPECTED))
async def test_a_small_run_without_faults_does_everything_and_fails_nothing(
    name: str, ottla_cluster: ClusterUnderTest, small_run: Callable[..., Any]
) -> None:
    run = small_run(name, ottla_cluster.bootstrap, BOTH)
    await run.drive(OPERATIONS.get(name, 80))
    found = counts(run.history)
    assert {f for f, kind in found if kind is EventKind.OK} >= EXPECTED[name]
    assert run.workload.is_caught_up
    in_doubt = [
        operation.completion
        for operation in run.history.operations()
        if operation.kind is not EventKind.OK
        and operation.invoke.f != "crash"
        and not operation.extra.get("refused")
    ]
    assert not in_doubt
    facts = RunFacts(workload=name, clients=(OWN, CONFLUENT))
    checkers = [checker for checker in run.workload.checkers if checker in CHECKERS]
    verdicts = judge(checkers, run.history, facts)
    assert [verdict for verdict in verdicts if verdict.valid is not True] == []
