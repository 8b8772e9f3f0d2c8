"""Strangers send arbitrary frames to real processes, and disturb no other client.

By default it ends after some frames of every API; `OTTLA_ORACLE_SECONDS` sets a duration instead,
and `OTTLA_ORACLE_SEED` another seed. A failure prints its seed and last frames, and stores them in
`OTTLA_ORACLE_KEEP` (by default beside the cluster's files).
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.jepsen.processes.runs.run_evidence import errors_in
from ottla.wire.apis import API
from tests.jepsen.oracles.end_of_process import (
    SETTINGS,
    BrokerPort,
    Prey,
    deaths_among,
    hunt_brokers,
)

SECONDS = float(os.environ.get("OTTLA_ORACLE_SECONDS", "240"))
FRAME_COUNT = None if "OTTLA_ORACLE_SECONDS" in os.environ else 2_000
SEED = int(os.environ.get("OTTLA_ORACLE_SEED", "15"))


@pytest.mark.cluster
@pytest.mark.timeout(SECONDS + 240)
def test_no_request_ends_a_process_or_a_neighbours_connection(
    plan_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    processes = plan_cluster(controllers=3, brokers=2, **SETTINGS)
    processes.start()

    def deaths() -> list[str]:
        return deaths_among(processes.running, processes.log_of)

    brokers = [
        BrokerPort(name, processes.node(name).id, processes.node(name).address)
        for name in processes.named("broker")
    ]
    prey = Prey(brokers, deaths)
    report = trio.run(
        partial(hunt_brokers, prey, seed=SEED, seconds=SECONDS, frame_count=FRAME_COUNT)
    )
    report.unforeseen = [f"{node}: {line}" for node, line in errors_in(processes.plan.directory)]
    print(report)
    if report.violations or report.unforeseen:
        print(report.keep(Path(os.environ.get("OTTLA_ORACLE_KEEP", tmp_path))))
    assert not report.violations, str(report)
    assert not report.unforeseen, str(report)
    assert report.sent.keys() >= set(API)
    assert report.neighbour_answers
