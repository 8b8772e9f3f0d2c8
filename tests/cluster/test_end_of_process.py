"""Strangers send what they like to real processes, and take nothing from anybody else.

It ends after some frames of every API; `OTTLA_ORACLE_SECONDS` is for how long it goes on instead,
and `OTTLA_ORACLE_SEED` makes it another one.  What a failure needs to be seen again is printed, and
kept in `OTTLA_ORACLE_KEEP` (else beside the cluster's files).
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.jepsen.oracles.end_of_process import SETTINGS, BrokerPort, Prey, hunt
from ottla.jepsen.processes.run_evidence import errors_in
from ottla.wire.apis import API

SECONDS = float(os.environ.get("OTTLA_ORACLE_SECONDS", "240"))
FRAME_COUNT = None if "OTTLA_ORACLE_SECONDS" in os.environ else 2_000
SEED = int(os.environ.get("OTTLA_ORACLE_SEED", "15"))
LAST_WORDS = 2_000


@pytest.mark.cluster
@pytest.mark.timeout(SECONDS + 240)
def test_no_request_ends_a_process_or_a_neighbours_connection(
    plan_cluster: Callable[..., Any], tmp_path: Path
) -> None:
    processes = plan_cluster(controllers=3, brokers=2, **SETTINGS)
    processes.start()

    def deaths() -> list[str]:
        return [
            f"{name} ({running.returncode}): {processes.log_of(name).read_text()[-LAST_WORDS:]}"
            for name, running in processes.running.items()
            if running.poll() is not None
        ]

    brokers = [
        BrokerPort(name, processes.node(name).id, processes.node(name).address)
        for name in processes.named("broker")
    ]
    report = trio.run(
        partial(hunt, Prey(brokers, deaths), seed=SEED, seconds=SECONDS, frame_count=FRAME_COUNT)
    )
    report.unforeseen = [f"{node}: {line}" for node, line in errors_in(processes.plan.directory)]
    print(report)
    if report.violations or report.unforeseen:
        print(report.keep(Path(os.environ.get("OTTLA_ORACLE_KEEP", tmp_path))))
    assert not report.violations, str(report)
    assert not report.unforeseen, str(report)
    assert report.sent.keys() >= set(API)
    assert report.neighbour_answers
