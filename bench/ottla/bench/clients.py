"""Comparison of Ottla's client with other clients that do the same work: records per second, and
CPU time per record.

Every run has a separate process (`client_work`).  The clients take turns, so that other load of the
machine affects all of them.  The figures are medians.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.client_work import WORKS
from ottla.bench.load import Load
from ottla.bench.topics import RunTopics
from ottla.client import ErrorCode, RefusedError

CLIENTS = ("ottla", "confluent-kafka", "aiokafka")
"""Names of the clients to compare, in the order in which they are measured."""
KINDS = ("produce", "produce many", "consume", "consume batches", "consume singly")
"""Kinds of work that are compared. Writers pass one record per call, or many records with
`send_many`. Readers get lists of records, batches with columns of values, or one record at a time.
"""
RECORD_BYTES = (100, 1_000)
RUN_TIMEOUT_S = 300
MICROSECONDS = 1_000_000


class ClientInstallation(NamedTuple):
    """A client to measure, and the Python interpreter that has it installed."""

    client: str
    """Name of the client, as in `CLIENTS`."""
    python: str
    """Path of the interpreter."""


INSTALLED = {name: ClientInstallation(name, sys.executable) for name in CLIENTS}
"""All clients of the interpreter that runs the benchmark."""


def run_clients(
    bootstrap: str,
    *,
    topics: RunTopics,
    count: int,
    rounds: int,
    progress: Callable[[int], None],
    clients: Mapping[str, ClientInstallation] = INSTALLED,
) -> dict[str, Any]:
    """Measure each client while it writes and reads `count` records of 100 B, and a quarter as many
    records of 1 KB. Returns the measured values of each client.

    `clients` contains the clients by their labels in the result.
    """
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    done = 0
    for record_bytes in RECORD_BYTES:
        name = f"{topics.name}-{record_bytes}"
        records = count if record_bytes < 1_000 else max(1, count // 4)
        topics.make(Load(bootstrap=bootstrap, topic=name))
        for kind in KINDS:
            for _ in range(rounds):
                for label, one in clients.items():
                    if (one.client, kind) not in WORKS:
                        continue
                    row = f"{kind} {record_bytes} B, {label}"
                    figures = _run_one(one, kind, bootstrap, name, records, record_bytes)
                    found[row].append(figures)
                    done += 1
                    progress(done)
    return {"what": "clients", "rounds": rounds} | {
        row: summary(runs) for row, runs in found.items()
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of the values measured in one client's runs."""
    return {
        "per_second": round(median(one["count"] / one["seconds"] for one in runs)),
        "cpu_us_each": round(median(MICROSECONDS * one["cpu_s"] / one["count"] for one in runs), 2),
        "thread_share": round(median(one["thread_s"] / one["seconds"] for one in runs), 2),
    }


def _run_one(one: ClientInstallation, kind: str, *rest: str | int) -> dict[str, float]:
    client, python = one
    command = [python, "-m", "ottla.bench.client_work", client, kind, *map(str, rest)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if ended.returncode:
        reason = (ended.stderr.strip() or "it said nothing").splitlines()[-1]
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{client} failed to {kind}: {reason}")
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures
