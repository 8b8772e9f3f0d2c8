"""Many members join, leave, crash and restart: ownership and committed offsets stay correct.

One group has the popular clients side by side. OTTLA_GROUP_MEMBERS=50 and OTTLA_GROUP_CHURN_S=25
make it as large as a big application's group, with every strategy.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.groups.group_members import BEGUN
from tests.cluster.secure_form import command_of

pytestmark = pytest.mark.cluster

MEMBER_COUNT = int(os.environ.get("OTTLA_GROUP_MEMBERS", "10"))
CHURN_S = float(os.environ.get("OTTLA_GROUP_CHURN_S", "3"))
CRASH_COUNT = max(1, int(CHURN_S / 12))
PARTITION_COUNT = 2 * MEMBER_COUNT
LIFE_S = max(6.0, 0.3 * MEMBER_COUNT)
"""No member stays longer: shorter, and there is no moment in which a large group is complete."""

STATIC_PLACES = 1
"""Number of the first processes whose members keep their partitions while they restart."""

SESSION_MS = 6_000
"""A crashed member blocks its group for this time."""

SETTLE_S = 60.0
END_S = 60.0
PRODUCED_PER_S = 200
TOPIC = "churned"
PROGRAM = Path(__file__).with_name("group_members.py")

CASTS = {
    "range": ("confluent-kafka", "kafka-python", "aiokafka", "ottla"),
    "roundrobin": ("confluent-kafka", "kafka-python", "aiokafka", "ottla"),
    "sticky": ("kafka-python", "aiokafka", "ottla"),
    "cooperative-sticky": ("confluent-kafka", "kafka-python", "ottla"),
    "consumer:uniform": ("confluent-kafka", "ottla"),
    "consumer:range": ("confluent-kafka", "ottla"),
}
"""Clients that can share a group by each strategy; after `consumer:`, one of the coordinator's."""

IN_SHORT = ("range", "cooperative-sticky", "consumer:uniform")
STRATEGIES = tuple(CASTS) if "OTTLA_GROUP_MEMBERS" in os.environ else IN_SHORT

BROKER = {
    "group_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_consumer_min_heartbeat_interval_ms": "500",
}

Row = dict[str, Any]


# ---- the members


class Crowd:
    """Processes of members, all of one group, and the ledgers that they write."""

    def __init__(self, bootstrap: str, directory: Path, strategy: str) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._strategy = strategy
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._places = _places(CASTS[strategy])
        self._started = 0
        for place in range(len(self._places)):
            self.start(place)

    def start(self, place: int) -> None:
        """Start the members of one place."""
        self._started += 1
        client, count = self._places[place]
        path = self._directory / f"members-{self._started}"
        plan = {
            "bootstrap": self._bootstrap,
            "group": self._strategy,
            "topic": TOPIC,
            "client": client,
            "strategy": self._strategy,
            "count": count,
            "seed": self._started,
            "ledger": f"{path}.ledger",
            "is_static": place < STATIC_PLACES,
            "session_timeout_ms": SESSION_MS,
            "life_s": LIFE_S,
        }
        with open(f"{path}.log", "wb") as log:
            self._running[place] = subprocess.Popen(
                [*command_of(PROGRAM), json.dumps(plan)],
                stdout=log,
                stderr=log,
            )

    def crash_one(self, rng: random.Random) -> None:
        """Kill a process, none of whose members leaves its group; others replace them."""
        place = rng.randrange(STATIC_PLACES, len(self._places))
        victim = self._running.pop(place)
        assert victim.poll() is None, self.last_words()
        victim.kill()
        victim.wait()
        self.start(place)

    def has_begun(self) -> bool:
        """Return whether all processes handle signals."""
        logs = self._directory.glob("members-*.log")
        return sum(BEGUN in log.read_text() for log in logs) == self._started

    def settle(self) -> None:
        """Let the present members stay."""
        for child in self._running.values():
            child.send_signal(signal.SIGUSR1)

    def is_there(self) -> bool:
        """Assert that no process ended by itself."""
        assert all(child.poll() is None for child in self._running.values()), self.last_words()
        return True

    def roll(self) -> int:
        """Have the static members restart one after the other; return how many they are."""
        for place in range(STATIC_PLACES):
            self._running[place].send_signal(signal.SIGUSR2)
        return sum(count for _, count in self._places[:STATIC_PLACES])

    def end(self) -> None:
        """End all of them."""
        for child in self._running.values():
            child.terminate()
        for child in self._running.values():
            try:
                child.wait(END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def ledger(self) -> list[Row]:
        """Return all that the members noted; SIGKILL may have cut a last line short."""
        texts = [path.read_text() for path in sorted(self._directory.glob("*.ledger"))]
        return [
            json.loads(line)
            for text in texts
            for line in text.splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def last_words(self) -> str:
        """Return the output of the members' processes."""
        logs = sorted(self._directory.glob("members-*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-2_000:]}" for path in logs)


def _places(cast: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return each process's client and number of members: about five, with every client."""
    process_count = max(len(cast), MEMBER_COUNT // 5)
    counts = [MEMBER_COUNT // process_count] * process_count
    counts[0] += MEMBER_COUNT - sum(counts)
    return [(cast[place % len(cast)], count) for place, count in enumerate(counts)]


@contextmanager
def open_crowd(bootstrap: str, directory: Path, strategy: str) -> Iterator[Crowd]:
    crowd = Crowd(bootstrap, directory, strategy)
    try:
        yield crowd
    finally:
        crowd.end()


class Feed:
    """A producer that writes to all partitions in turn; knows how many records each has."""

    def __init__(self, bootstrap: str) -> None:
        self.counts = dict.fromkeys(range(PARTITION_COUNT), 0)
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(1 / PRODUCED_PER_S):
            self._producer.produce(
                TOPIC,
                b"%d" % number,
                partition=number % PARTITION_COUNT,
                on_delivery=self._delivered,
            )
            self._producer.poll(0)
            number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.counts[message.partition()] += 1

    def stop(self) -> None:
        """End it, when everything is delivered."""
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


# ---- what must hold


def owned_twice(ledger: list[Row]) -> list[tuple[int, int]]:
    """Return each (generation, partition) in which two members had it.

    A member has a partition from the generation that brought it to the one that took it, or to the
    last one it knew of.  A static member is the same after its restart.
    """
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    owned: dict[str, dict[int, int]] = defaultdict(dict)
    known: dict[str, int] = {}
    names = {row["life"]: row.get("instance") or row["life"] for row in ledger}

    def close(life: str, partition: int) -> None:
        began = owned[life].pop(partition, None)
        if began is not None:
            for generation in range(began, max(began, known[life]) + 1):
                owners[generation, partition].add(names[life])

    for row in ledger:
        life = row["life"]
        known[life] = max(known.get(life, -1), row["generation"])
        if row["what"] == "own":
            for partition in row["partitions"]:
                owned[life].setdefault(partition, row["generation"])
        elif row["what"] == "give":
            for partition in row["partitions"]:
                close(life, partition)
    for life, partitions in owned.items():
        for partition in [*partitions]:
            close(life, partition)
    return [which for which, lives in owners.items() if len(lives) > 1]


def gone_back(ledger: list[Row]) -> list[str]:
    """Return each acknowledged commit that a later commit, or a later owner, does not know of."""
    commits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in ledger:
        if row["what"] == "commit":
            commits[row["partition"]].append((row["generation"], row["offset"]))
    wrong = []
    for partition, rows in commits.items():
        last = 0
        for generation, offset in sorted(rows, key=lambda row: row[0]):
            if offset < last:
                wrong.append(f"{partition}: {offset} after {last} in generation {generation}")
            last = offset
    begun: dict[tuple[str, int], int] = {}
    for row in ledger:
        if row["what"] == "own":
            begun |= {
                (row["life"], partition): row["generation"] for partition in row["partitions"]
            }
        elif row["what"] == "read":
            generation = begun.pop((row["life"], row["partition"]), 0)
            before = [offset for at, offset in commits[row["partition"]] if at < generation]
            if row["first"] < max(before, default=0):
                wrong.append(f"{row['partition']}: {row['life']} began at {row['first']}: {before}")
    return wrong


def unread(ledger: list[Row], counts: dict[int, int]) -> list[tuple[int, int]]:
    """Return (partition, offset) of the first record of each unread gap."""
    seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in ledger:
        if row["what"] == "read":
            seen[row["partition"]].append((row["first"], row["last"]))
    gaps = []
    for partition, count in counts.items():
        end = 0
        for first, last in [*sorted(seen[partition]), (count, count)]:
            if first > end:
                gaps.append((partition, end))
            end = max(end, last + 1)
    return gaps


def test_what_the_ledger_says_is_judged() -> None:
    own = {"what": "own", "life": "a", "generation": 1, "partitions": [0]}
    give = own | {"what": "give", "generation": 3}
    assert owned_twice([own, own | {"life": "b"}]) == [(1, 0)]
    static = {"instance": "s"}
    assert owned_twice([own | static, own | static | {"life": "b"}]) == []
    assert owned_twice([own, give, own | {"life": "b", "generation": 4}]) == []
    assert owned_twice([own, give, own | {"life": "b", "generation": 2}]) == [(2, 0)]
    commit = {"what": "commit", "life": "a", "partition": 0, "generation": 1, "offset": 5}
    read = {"what": "read", "life": "b", "partition": 0, "generation": 2, "first": 5, "last": 6}
    given = own | {"life": "b", "generation": 2}
    assert gone_back([commit, commit | {"generation": 2, "offset": 6}, given, read]) == []
    assert gone_back([commit, commit | {"generation": 2, "offset": 4}])
    assert gone_back([commit, given, read | {"first": 4}])
    assert unread([read, read | {"first": 0, "last": 4}], {0: 7}) == []
    assert unread([read], {0: 7}) == [(0, 0)]
    assert unread([read | {"first": 0}], {0: 8}) == [(0, 7)]


# ---- the group


class Group:
    """The group as an administrator sees it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._name = name

    def shares(self) -> dict[str, set[int]] | None:
        """Return the partitions that each member owns, once all members have joined and the group
        is stable."""
        found = self._admin.describe_consumer_groups([self._name])[self._name].result(60)
        if found.state != ConsumerGroupState.STABLE or len(found.members) != MEMBER_COUNT:
            return None
        return {
            one.group_instance_id or one.member_id: {
                at.partition for at in one.assignment.topic_partitions
            }
            for one in found.members
        }

    def committed(self) -> dict[int, int]:
        """Return the group's offset in each partition that has one."""
        asked = [ConsumerGroupTopicPartitions(self._name)]
        found = self._admin.list_consumer_group_offsets(asked)[self._name].result(60)
        return {one.partition: one.offset for one in found.topic_partitions}


@pytest.mark.timeout(300 + 2 * CHURN_S)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_of_all_clients_come_and_go_and_nothing_is_owned_twice(
    fresh: Any, tmp_path: Path, strategy: str
) -> None:
    fresh.start("controller")
    fresh.start("broker", **BROKER)
    admin = AdminClient({"bootstrap.servers": fresh.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT)])[TOPIC].result(60)
    group = Group(fresh.bootstrap, strategy)
    rng = random.Random(7)
    feed = Feed(fresh.bootstrap)
    try:
        with open_crowd(fresh.bootstrap, tmp_path, strategy) as crowd:
            # A member that crashes before the group has begun costs no generation.
            fresh.wait_for(
                lambda: any(row["what"] == "own" for row in crowd.ledger()), "first share", SETTLE_S
            )
            for _ in range(CRASH_COUNT):
                time.sleep(CHURN_S / (CRASH_COUNT + 1))
                crowd.crash_one(rng)
            time.sleep(CHURN_S / (CRASH_COUNT + 1))
            fresh.wait_for(crowd.has_begun, "start of all members", SETTLE_S)
            crowd.settle()
            settling = time.monotonic()
            fresh.wait_for(
                lambda: crowd.is_there() and group.shares(), "share of everybody", SETTLE_S
            )
            settled_s = time.monotonic() - settling
            feed.stop()
            fresh.wait_for(lambda: group.committed() == feed.counts, "commit of it all", SETTLE_S)
            # What a crashed member had may be on its way still, by the cooperative protocol.
            before = fresh.wait_for(group.shares, "share of everybody", SETTLE_S)
            last = max(row["generation"] for row in crowd.ledger())
            rolling = time.monotonic()
            roll_count = crowd.roll()
            fresh.wait_for(
                lambda: sum(row["what"] == "rolled" for row in crowd.ledger()) == roll_count,
                "restart of the static members",
                SETTLE_S,
            )
            rolled_s = time.monotonic() - rolling
            after = fresh.wait_for(group.shares, "share of everybody", SETTLE_S)
    finally:
        feed.stop()
    ledger = crowd.ledger()
    generations = {row["generation"] for row in ledger if row["what"] == "own"}
    lives = {row["life"] for row in ledger}
    print(
        f"{strategy}: {len(lives)} lives of members, {max(generations)} generations, "
        f"{sum(row['what'] == 'commit' for row in ledger)} commits, {sum(feed.counts.values())} "
        f"records, settled after {settled_s:.1f} s, {roll_count} restarted in {rolled_s:.1f} s"
    )
    assert sorted(at for share in before.values() for at in share) == [*range(PARTITION_COUNT)]
    # A static member that is away for longer than its session gives its partitions up.
    if rolled_s * 1_000 < SESSION_MS:
        assert after == before
    assert owned_twice(ledger) == []
    assert gone_back(ledger) == []
    assert unread(ledger, feed.counts) == []
    assert len(generations) > 1
    assert {row["generation"] for row in ledger if row["what"] == "rolled"} == {last}
    assert len(lives) > MEMBER_COUNT
