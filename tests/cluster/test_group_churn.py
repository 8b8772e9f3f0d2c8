"""Many members join, leave, crash and come back: who owns what, and what is committed, stays right.

OTTLA_GROUP_MEMBERS=50 and OTTLA_GROUP_CHURN_S=25 make it as large as a big application's group.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

MEMBER_COUNT = int(os.environ.get("OTTLA_GROUP_MEMBERS", "20"))
CHURN_S = float(os.environ.get("OTTLA_GROUP_CHURN_S", "9"))
PROCESS_COUNT = 5
CRASH_COUNT = 2
PARTITION_COUNT = 2 * MEMBER_COUNT
SETTLE_S = 40.0
END_S = 20.0
GROUP = TOPIC = "churned"
PROGRAM = Path(__file__).with_name("group_members.py")


class Crowd:
    """Processes of members, all of one group, and the ledgers that they write."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start_one(self) -> None:
        """Start one process of members."""
        self._started += 1
        path = self._directory / f"members-{self._started}"
        words = [self._bootstrap, GROUP, TOPIC, MEMBER_COUNT // PROCESS_COUNT, self._started]
        command = [sys.executable, str(PROGRAM), *map(str, words), f"{path}.ledger"]
        with open(f"{path}.log", "wb") as log:
            self._running.append(subprocess.Popen(command, stdout=log, stderr=log))

    def crash_one(self, rng: random.Random) -> None:
        """Kill one of the processes: none of its members says goodbye."""
        victim = self._running.pop(rng.randrange(len(self._running)))
        victim.kill()
        victim.wait()

    def settle(self) -> None:
        """Let everybody stay who is there."""
        for child in self._running:
            assert child.poll() is None
            child.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        """End all of them."""
        for child in self._running:
            child.terminate()
        for child in self._running:
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def ledger(self) -> list[dict[str, Any]]:
        """Return all that the members noted; SIGKILL may have cut a last line short."""
        texts = [path.read_text() for path in self._directory.glob("*.ledger")]
        return [
            json.loads(line)
            for text in texts
            for line in text.splitlines(keepends=True)
            if line.endswith("\n")
        ]


@contextmanager
def open_crowd(bootstrap: str, directory: Path) -> Iterator[Crowd]:
    crowd = Crowd(bootstrap, directory)
    try:
        for _ in range(PROCESS_COUNT):
            crowd.start_one()
        yield crowd
    finally:
        crowd.end()


def shares(admin: AdminClient) -> list[set[int]] | None:
    """Return what each member owns, once everybody is there and the group is stable."""
    found = admin.describe_consumer_groups([GROUP])[GROUP].result(10)
    if found.state != ConsumerGroupState.STABLE or len(found.members) != MEMBER_COUNT:
        return None
    return [{p.partition for p in one.assignment.topic_partitions} for one in found.members]


def owned_twice(ledger: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return each (generation, partition) that two members were given."""
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for row in ledger:
        if row["what"] == "own":
            for partition in row["partitions"]:
                owners[row["generation"], partition].add(row["member"])
    return [which for which, members in owners.items() if len(members) > 1]


def gone_back(ledger: list[dict[str, Any]]) -> list[str]:
    """Return each commit that is not above all of the earlier generations of its partition.

    Who owns a partition commits one more than what is committed, so an offset that was lost, or
    that a member of an earlier generation could still write, makes one come twice.
    """
    commits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in ledger:
        if row["what"] == "commit":
            commits[row["partition"]].append((row["generation"], row["offset"]))
    wrong = []
    for partition, rows in commits.items():
        rows.sort()
        for (_, before), (generation, offset) in pairwise(rows):
            if offset <= before:
                wrong.append(f"{partition}: {offset} after {before} in generation {generation}")
    return wrong


def test_what_the_ledger_says_is_judged() -> None:
    own = {"what": "own", "generation": 1, "partitions": [0]}
    assert owned_twice([own | {"member": "a"}, own | {"member": "b"}]) == [(1, 0)]
    assert owned_twice([own | {"member": "a"}, own | {"member": "b", "generation": 2}]) == []
    one = {"what": "commit", "partition": 0, "generation": 1, "offset": 1}
    assert gone_back([one, one | {"generation": 2}]) == ["0: 1 after 1 in generation 2"]
    assert gone_back([one, one | {"generation": 2, "offset": 2}]) == []


def test_many_members_come_and_go_and_nothing_is_owned_twice(fresh: Any, tmp_path: Path) -> None:
    fresh.start("controller", "broker")
    admin = AdminClient({"bootstrap.servers": fresh.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT)])[TOPIC].result(30)
    rng = random.Random(7)
    with open_crowd(fresh.bootstrap, tmp_path) as crowd:
        for _ in range(CRASH_COUNT):
            time.sleep(CHURN_S / (CRASH_COUNT + 1))
            crowd.crash_one(rng)
            crowd.start_one()
        time.sleep(CHURN_S / (CRASH_COUNT + 1))
        crowd.settle()
        settling = time.monotonic()
        last = fresh.wait_for(lambda: shares(admin), "share of everybody", SETTLE_S)
        seconds = time.monotonic() - settling
        time.sleep(1.0)  # some commits of the last generation
    ledger = crowd.ledger()
    assert sorted(partition for share in last for partition in share) == [*range(PARTITION_COUNT)]
    assert owned_twice(ledger) == []
    assert gone_back(ledger) == []
    generations = {row["generation"] for row in ledger if row["what"] == "own"}
    commits = [row for row in ledger if row["what"] == "commit"]
    members = {row["member"] for row in ledger}
    print(
        f"{len(members)} members, {len(generations)} generations, {len(commits)} commits, "
        f"settled after {seconds:.1f} s"
    )
    assert len(generations) > 1
    assert {row["partition"] for row in commits} == {*range(PARTITION_COUNT)}
