"""Memory of very many share partitions on one broker, and the longest time for which they block the
broker's event loop.

`python -m ottla.bench.queues.share_scale [GROUPS PARTITIONS]` builds a broker without drivers, by
default with 100 partitions and 1,000 groups. The broker leads the topic and coordinates all states
of its share partitions. Each share partition has 2,000 records in flight, in batches of 500.

The program prints the memory of each step. For work on all share partitions, it prints the CPU time
of all slices and of the longest slice. This work is: loading the states after a failover, the
expiry of all locks at one time, deleting the topic, and a ShareFetch that names 1,000 partitions.

The CPU time of one thread is measured, so other work on the machine has little effect.
"""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ottla.bench.processes import usage_of
from ottla.bench.queues.share_paths import image_with
from ottla.bench.requests import frame_of
from ottla.bench.tables import table_of
from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.share_state.share_state_shard import ShareStateShard
from ottla.broker.shares.led_share import LedShare, Stage
from ottla.broker.shares.share_partition import AckBatch, AckType, LogBatch
from ottla.jepsen.fuzz.mini_broker import NOW_MS, WALL_MS, MiniBroker
from ottla.model.errors import ErrorCode
from ottla.model.garbage import collection_paused
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.model.limits import MIB
from ottla.model.run_now import run_now
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.share_fetch_request import FetchPartition, FetchTopic, ShareFetchRequest

GROUPS, PARTITIONS = 1_000, 100
FETCHED_PARTITIONS = 1_000
"""Number of partitions that the measured ShareFetch request names."""
FETCHES_MAX = 20
"""Maximum number of ShareFetch requests until all of the named partitions have been read."""
IN_FLIGHT = 2_000
BATCH = 500
"""Number of records that a share group's member acquires at once, equal to the default of
`max.poll.records`."""
SAMPLES = 100
"""Number of share partitions in which every record gets a different state from its neighbours."""
LOCK_MS = 30_000
TOPIC = "queued"
MEMBERS = [f"member-of-the-queue-{number:02}" for number in range(IN_FLIGHT // BATCH)]
SHARE_FETCH_VERSION, PRODUCE_VERSION = 1, 12


class SteppedClock:
    """Simulated clock that advances only when its time is set."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def monotonic_ms(self) -> int:
        """Return the time to which this clock was set, in milliseconds."""
        return self.now_ms

    def wall_ms(self) -> int:
        """Return the simulated wall time in milliseconds, which advances with `monotonic_ms`."""
        return WALL_MS + self.now_ms - NOW_MS


class Slices:
    """CPU time in seconds of work that is done in slices: the total, and the longest slice."""

    def __init__(self) -> None:
        self.sum_s = 0.0
        self.longest_s = 0.0

    def run(self, work: Callable[[], object]) -> None:
        """Run one slice of the work, and add its CPU time."""
        began_s = time.thread_time()
        work()
        took_s = time.thread_time() - began_s
        self.sum_s += took_s
        self.longest_s = max(self.longest_s, took_s)

    def run_all(self, steps: Iterable[object]) -> None:
        """Run an iterator to its end. Each of its steps is a slice of the work."""
        iterator, end = iter(steps), object()
        found: list[object] = []
        while not found or found[-1] is not end:
            self.run(lambda: found.append(next(iterator, end)))

    @property
    def cells(self) -> tuple[str, str]:
        """Table cells with the total CPU time in seconds and the longest slice in milliseconds."""
        return f"{self.sum_s:.2f} s", f"{1_000 * self.longest_s:.1f} ms"


class ManyShares:
    """Broker without drivers, with the share partitions of many groups on the partitions of one
    topic."""

    def __init__(self, groups: int, partitions: int) -> None:
        self.groups = [f"group-{number:05}" for number in range(groups)]
        self.partitions = partitions
        self.clock = SteppedClock()
        image = image_with(((SHARE_STATE_TOPIC, 1), (TOPIC, partitions)))
        self.broker = MiniBroker(frame_bytes_max=MIB, image=image, clock=self.clock)
        self.core = self.broker.core
        topic = image.topic(TOPIC)
        assert topic is not None
        self.topic_id = topic.id
        self.led: list[LedShare] = []

    def in_turn(self, work: Callable[[], object]) -> None:
        """Call `work` within one event-loop iteration. Coordinators write their records at the end
        of the iteration."""
        turn_end = self.broker.dispatcher.turn_end
        turn_end.begin()
        work()
        turn_end.end(self.broker.dispatcher.errors)

    def keys(self, group: str) -> Iterator[SharePartitionKey]:
        """Yield the keys of one group's share partitions."""
        for index in range(self.partitions):
            yield SharePartitionKey(group, self.topic_id, index)

    def initialize(self) -> None:
        """Create the state of every share partition, as the group coordinator does."""
        codes: set[ErrorCode] = set()
        persister = self.core.local_share_persister

        def initialize_group(group: str) -> None:
            for key in self.keys(group):
                persister.initialize(key, state_epoch=0, start_offset=0, on_done=codes.add)

        for group in self.groups:
            self.in_turn(partial(initialize_group, group))
        assert codes == {ErrorCode.NONE}

    def load(self) -> None:
        """Load every share partition, as the broker that leads the topic partition does."""
        shares, table = self.core.shares.delivery.shares, self.core.table

        def load_group(group: str) -> None:
            for key in self.keys(group):
                partition = table.find_by_id(key.topic_id, key.partition)
                self.led.append(shares.open(key, partition))

        for group in self.groups:
            self.in_turn(partial(load_group, group))
        assert all(led.stage is Stage.READY for led in self.led)

    def acquire(self) -> None:
        """Acquire the maximum number of in-flight records of each share partition, as members of
        its group."""
        batches = [LogBatch(at, at + BATCH - 1) for at in range(0, IN_FLIGHT, BATCH)]
        for led in self.led:
            for member_id, batch in zip(MEMBERS, batches, strict=True):
                acquired = led.share.acquire(
                    member_id,
                    [batch],
                    fetch_offset=batch.first_offset,
                    records_max=BATCH,
                    is_strict=False,
                    batch_size=BATCH,
                    now_ms=self.clock.now_ms,
                )
                assert len(acquired) == 1
            led.set_timer()

    def scatter(self, led: LedShare) -> None:
        """Release every second record that a member has acquired, so that neighbouring records have
        different states. The change is not written."""
        for member_id, begin in zip(MEMBERS, range(0, IN_FLIGHT, BATCH), strict=True):
            types = [AckType.RELEASE, AckType.RENEW] * (BATCH // 2)
            acks = [AckBatch(begin, begin + BATCH - 1, types)]
            led.share.acknowledge(member_id, acks, self.clock.now_ms)

    def end_locks(self) -> Slices:
        """Expire all acquisition locks at the same time. Returns the CPU time for processing the
        expiry."""
        self.clock.now_ms += LOCK_MS + 1
        times, purgatory = Slices(), self.core.purgatory
        while (due_ms := purgatory.next_deadline_ms) is not None and due_ms <= self.clock.now_ms:
            times.run(lambda: self.in_turn(lambda: purgatory.expire(self.clock.now_ms)))
        ended = sum(led.share.lock_end_count for led in self.led)
        assert ended == IN_FLIGHT * len(self.led), f"{ended} locks ended"
        return times

    def load_states(self) -> tuple[ShareStateShard, Slices]:
        """Load all states of share partitions as another coordinator would after a failover.
        Returns the states, and the CPU time of loading them."""
        coordinator = self.core.share_states
        partition = self.core.table.by_name[SHARE_STATE_TOPIC][0]
        log = partition.log
        assert log is not None
        shard = coordinator._new_shard(partition)
        replay, times = coordinator.replay_of(log, shard), Slices()
        while not replay.is_done:
            times.run(lambda: run_now(replay.replay_part()))
        times.run_all(shard.delete_states_without_topic())
        assert len(shard.states) == len(self.groups) * self.partitions
        return shard, times


def fetched() -> Slices:
    """Measure the CPU time of a ShareFetch request that names many partitions with one record each,
    and of the later ShareFetch requests that acquire the records. Returns the times of the slices
    of work."""
    shares = ManyShares(1, FETCHED_PARTITIONS)
    shares.initialize()
    batch = build_batch([(NOW_MS, b"key", b"v" * 100)])
    data = [PartitionProduceData(index=index, records=batch) for index in range(FETCHED_PARTITIONS)]
    produce = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    shares.broker.take(frame_of(produce, PRODUCE_VERSION), MIB)
    named = [FetchPartition(partition_index=index) for index in range(FETCHED_PARTITIONS)]
    times, led = Slices(), shares.core.shares.delivery.shares
    for epoch in range(FETCHES_MAX):
        topics = [FetchTopic(topic_id=shares.topic_id, partitions=named)] * (epoch == 0)
        request = ShareFetchRequest(
            group_id=shares.groups[0],
            member_id=MEMBERS[0],
            share_session_epoch=epoch,
            min_bytes=1,
            max_bytes=MIB,
            max_records=BATCH,
            batch_size=BATCH,
            topics=topics,
        )
        times.run_all(shares.broker.exchange_in_turns(frame_of(request, SHARE_FETCH_VERSION)))
        if sum(one.share.window.size for one in led) == FETCHED_PARTITIONS:
            return times
    raise AssertionError(f"{FETCHES_MAX} requests have not fetched all records")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    gc.collect()
    return usage_of([os.getpid()]).rss_bytes


def measure(groups: int, partitions: int) -> list[tuple[Any, ...]]:
    """Measure many share partitions on one broker, and return the rows of the table to print."""
    count = groups * partitions
    shares = ManyShares(groups, partitions)
    shares.initialize()
    rows: list[tuple[Any, ...]] = []
    before = resident_bytes()

    def weigh(what: str, number: int) -> None:
        nonlocal before
        after = resident_bytes()
        rows.append((what, f"{after / MIB:.0f} MiB", f"{(after - before) / number:.0f} B"))
        before = after

    def timed(what: str, times: Slices) -> None:
        rows.append((what, *times.cells))

    shares.load()
    weigh("an idle share partition on the leader", count)
    shares.acquire()
    weigh(f"its {IN_FLIGHT:,} records in flight", count)
    timed("all locks expire", shares.end_locks())
    before = resident_bytes()
    shard, times = shares.load_states()
    timed("states loaded by another coordinator", times)
    weigh("an idle state on the coordinator", count)
    idle = Slices()
    idle.run_all(shard.snapshot_idle(Instant(0, WALL_MS * 2)))
    timed("snapshots of idle states", idle)
    shard.take_effects()
    deleted = Slices()
    deleted.run_all(shard.delete_states_of([shares.topic_id]))
    timed("states of a deleted topic", deleted)
    shares.acquire()
    before = resident_bytes()
    samples = shares.led[:SAMPLES]
    for led in samples:
        shares.scatter(led)
    weigh("a record in a span of its own", sum(len(led.share.window.spans) for led in samples))
    timed(f"ShareFetches of {FETCHED_PARTITIONS:,} partitions", fetched())
    return rows


def main(arguments: list[str]) -> None:
    """Measure the given numbers of groups and partitions, and print one line of results for each
    step."""
    groups, partitions = map(int, arguments or (GROUPS, PARTITIONS))
    with collection_paused():  # the collector would visit a million objects again and again
        rows = measure(groups, partitions)
    print(table_of(("STEP", "RESIDENT, OR ALL SLICES", "EACH, OR THE LONGEST"), rows))


if __name__ == "__main__":
    main(sys.argv[1:])
