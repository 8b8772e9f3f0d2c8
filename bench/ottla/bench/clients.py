"""Our client beside others on the same work: records a second, and CPU for each.

Every run is a process of its own (`client_work`).  Clients take turns, so that whatever else the
machine does meets all of them; what is told is the median.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection
from statistics import median
from typing import Any

from ottla.bench.client_work import WORKS
from ottla.bench.load import Load
from ottla.bench.topics import RunTopics
from ottla.client import ErrorCode, RefusedError

CLIENTS = ("ottla", "confluent-kafka", "aiokafka")
"""Who takes turns."""
KINDS = ("produce", "produce many", "consume", "consume batches", "consume singly")
"""Record by record, by `send_many`; lists of records, columns of values, record by record."""
RECORD_BYTES = (100, 1_000)
RUN_TIMEOUT_S = 300
MICROSECONDS = 1_000_000


def run_clients(
    bootstrap: str,
    *,
    topics: RunTopics,
    count: int,
    rounds: int,
    progress: Callable[[int], None],
    clients: Collection[str] = CLIENTS,
) -> dict[str, Any]:
    """Let each client write and read so many records of 100 B, and a quarter as many of 1 KB."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    done = 0
    for record_bytes in RECORD_BYTES:
        name = f"{topics.name}-{record_bytes}"
        records = count if record_bytes < 1_000 else max(1, count // 4)
        topics.make(Load(bootstrap=bootstrap, topic=name))
        for kind in KINDS:
            for _ in range(rounds):
                for client in clients:
                    if (client, kind) not in WORKS:
                        continue
                    row = f"{kind} {record_bytes} B, {client}"
                    told = _run_one(client, kind, bootstrap, name, records, record_bytes)
                    found[row].append(told)
                    done += 1
                    progress(done)
    return {"what": "clients", "rounds": rounds} | {
        row: summary(runs) for row, runs in found.items()
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of one client's runs."""
    return {
        "per_second": round(median(one["count"] / one["seconds"] for one in runs)),
        "cpu_us_each": round(median(MICROSECONDS * one["cpu_s"] / one["count"] for one in runs), 2),
    }


def _run_one(client: str, kind: str, *rest: str | int) -> dict[str, float]:
    command = [sys.executable, "-m", "ottla.bench.client_work", client, kind, *map(str, rest)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if ended.returncode:
        reason = (ended.stderr.strip() or "it said nothing").splitlines()[-1]
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{client} failed to {kind}: {reason}")
    told: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return told
