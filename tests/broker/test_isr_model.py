"""One partition on three brokers under a real controller's rules: nothing committed is ever lost.

A random walk.  The partitions, the keepers of the in-sync replicas and the controller's decisions
are the real ones; logs, network and time are models.  Requests and answers are lost, fetches come
late, metadata lags behind by any amount, processes are killed, paused and drained, and one machine
at a time loses the tail of its log.  Each run is told by its seed alone.

It fails for, among others: a change dropped when its answer is lost or when metadata of the same
partition epoch comes again, an overtaken change taken for a rejected one, new members that do not
count before the answer, a high watermark that moves below min ISR, a join before the epoch's start.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from ottla.broker.isr_changes import IsrChange, request_of
from ottla.broker.isr_driver import IsrKeeper
from ottla.broker.partition import Partition
from ottla.broker.partition_table import PartitionTable
from ottla.broker.purgatory import Purgatory
from ottla.controller import elections, partitions
from ottla.controller.decision import Decision
from ottla.controller.rehearsal import Rehearsal
from ottla.metadata.image import MetadataImage
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.topic import TopicConfig
from ottla.proto import controller_pb2 as pb
from ottla.storage.append_info import AppendInfo
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

IDS = (NodeId(1), NodeId(2), NodeId(3))
LAG_MS = 10_000
STEP_COUNT = 2_000
HEALING_ROUND_COUNT = 40

Record = tuple[int, int]
"""The leader epoch it was written in, and a number of its own."""


class ModelLog:
    """A log as far as leadership needs it; what is appended is flushed."""

    failure = None
    log_start_offset = Offset(0)

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    recovery_point = end_offset

    def assign_epoch(self, epoch: Epoch, start_offset: Offset) -> None:
        assert not self.records or self.records[-1][0] <= epoch

    def append_as_leader(
        self, records: memoryview, *, leader_epoch: Epoch, now_ms: int
    ) -> AppendInfo:
        base_offset = Offset(len(self.records))
        self.records.append((leader_epoch, int.from_bytes(records)))
        return AppendInfo(base_offset, base_offset, -1, self.log_start_offset, False, -1)

    def update_high_watermark(self, offset: int) -> None:
        assert self.high_watermark <= offset <= len(self.records)
        self.high_watermark = offset

    def truncate(self, end_offset: int) -> None:
        del self.records[end_offset:]
        self.high_watermark = min(self.high_watermark, end_offset)


@dataclass(eq=False)
class Life:
    """One process of a broker, from its registration to its end."""

    epoch: int
    partition: Partition
    table: PartitionTable
    keeper: IsrKeeper
    seen: int = -1
    """Which of the controller's images it has applied."""
    changes: dict[Partition, IsrChange] = field(default_factory=dict)
    """What its one AlterPartition request under way asks."""
    answer: pb.AlterPartitionResponse | None = None
    is_fetching: bool = False
    is_leaving: bool = False


@dataclass(eq=False)
class Node:
    """A broker's machine: its log outlives its processes."""

    id: NodeId
    log: ModelLog = field(default_factory=ModelLog)
    life: Life | None = None
    life_count: int = 0
    is_paused: bool = False
    clean_epoch: int = -1
    has_lost_tail: bool = False
    """And has not told the controller yet, by an unclean registration."""
    is_behind: bool = False
    """Since it lost the tail of its log, until it is in sync again."""


@dataclass(frozen=True)
class Fetch:
    """A follower's request on its way."""

    node: Node
    life: Life
    leader: NodeId
    leader_epoch: int
    end_offset: int
    last_epoch: int


@dataclass(frozen=True)
class Fetched:
    """A leader's answer on its way."""

    fetch: Fetch
    truncate_to: int | None
    records: tuple[Record, ...]
    high_watermark: int


class Walk:
    """The cluster, and one random step after the other."""

    def __init__(self, seed: int, min_isr: int) -> None:
        self.rng = Random(seed)
        self.now_ms = 1_000
        self.config = TopicConfig(min_insync_replicas=min_isr)
        self.cluster = Rehearsal(min_insync_replicas=min_isr)
        self.nodes = {one: Node(one) for one in IDS}
        self.committed: list[Record] = []
        self.network: list[Fetch | Fetched] = []
        self.written = 0
        self.cluster.start(*IDS)
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(IDS))
        topic = CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        self.cluster.forward(CreateTopicsRequest(topics=[topic]))
        self.images: list[MetadataImage] = [self.cluster.image]
        self.offsets = [self.cluster.next_offset - 1]
        for node in self.nodes.values():
            self.begin_life(node, self.cluster.image.brokers[node.id].epoch)

    # the clock of the keepers
    def monotonic_ms(self) -> int:
        return self.now_ms

    wall_ms = monotonic_ms

    def begin_life(self, node: Node, epoch: int) -> None:
        table = PartitionTable(self.cluster.image)

        def is_eligible(replica: NodeId, broker_epoch: int) -> bool:
            broker = table.image.brokers.get(replica)
            return broker is not None and broker.is_active and broker_epoch in (broker.epoch, -1)

        topic = self.cluster.image.topic("t")
        assert topic is not None
        partition = Partition(
            "t", topic.id, 0, local_id=node.id, is_eligible=is_eligible, lag_ms_max=LAG_MS
        )
        table.add(partition)
        unused: Any = None
        keeper = IsrKeeper(
            table,
            unused,
            Purgatory(),
            self,
            BrokerConfig(node_id=node.id, replica_lag_time_ms_max=LAG_MS),
            lambda: epoch,
        )
        node.life = Life(epoch, partition, table, keeper)
        node.life_count += 1
        node.clean_epoch = -1
        log: Any = node.log
        partition.attach(log, self.now_ms)
        self.publish(node, node.life, len(self.images) - 1)

    def end_life(self, node: Node) -> None:
        assert node.life is not None
        node.life.partition.remove()
        node.life = None
        node.is_paused = False
        node.log.high_watermark = self.rng.randint(0, node.log.high_watermark)

    # ---- what may happen

    def step(self) -> None:
        """Let one thing happen, and check that all is well."""
        steps: list[tuple[int, Callable[[], None]]] = [
            (60, self.append),
            (300, self.fetch),
            (500, self.deliver),
            (20, self.lose),
            (150, self.ask_controller),
            (200, self.decide),
            (150, self.take_answer),
            (50, self.lose_answer),
            (50, self.hear_of_metadata),
            (20, self.pass_time),
            (8, self.look_for_lag),
            (3, self.kill_process),
            (2, self.lose_power),
            (4, self.pause),
            (20, self.wake),
            (10, self.end_session),
            (60, self.heartbeat),
            (3, self.drain),
            (60, self.restart),
            (5, self.rebalance),
        ]
        (step,) = self.rng.choices([one for _, one in steps], [weight for weight, _ in steps])
        step()
        self.note_image()
        self.check()

    def note_image(self) -> None:
        if self.cluster.image is not self.images[-1]:
            self.images.append(self.cluster.image)
            self.offsets.append(self.cluster.next_offset - 1)

    def append(self) -> None:
        """Write to a broker that believes that it leads."""
        for _, life in self.running():
            if life.partition.is_leader and self.rng.random() < 0.7:
                self.written += 1
                life.partition.append(
                    self.written.to_bytes(4),
                    acks=1,
                    now_ms=self.now_ms,
                    mono_ms=self.now_ms,
                )

    def fetch(self) -> None:
        node, life = self.any_running()
        partition = life.partition
        if partition.is_leader or life.is_fetching or partition.leader_id not in self.nodes:
            return
        life.is_fetching = True
        records = node.log.records
        self.network.append(
            Fetch(
                node,
                life,
                partition.leader_id,
                partition.leader_epoch,
                len(records),
                records[-1][0] if records else -1,
            )
        )

    def deliver(self) -> None:
        """Let any message arrive, the oldest or not, if its receiver runs."""
        if not self.network:
            return
        message = self.rng.choice(self.network)
        to = message.fetch.node if isinstance(message, Fetched) else self.nodes[message.leader]
        if to.is_paused:
            return
        self.network.remove(message)
        if isinstance(message, Fetched):
            self.take_records(message)
        elif to.life is not None:
            self.answer_fetch(to, to.life, message)

    def answer_fetch(self, leader: Node, life: Life, fetch: Fetch) -> None:
        partition = life.partition
        try:
            partition.leader_log(Epoch(fetch.leader_epoch))
        except RefusedError:
            fetch.life.is_fetching = False
            return
        ours = leader.log.records
        end = fetch.end_offset
        follows = end <= len(ours) and (end == 0 or ours[end - 1][0] == fetch.last_epoch)
        truncate_to = None if follows else self.common_end(ours, fetch.node.log.records[:end])
        if follows:
            try:
                partition.on_follower_fetch(
                    fetch.node.id,
                    end_offset=Offset(end),
                    log_start_offset=Offset(0),
                    broker_epoch=fetch.life.epoch,
                    now_ms=self.now_ms,
                )
            except RefusedError:
                return
            if partition.may_join(fetch.node.id):
                life.keeper.note(partition)
        records = tuple(ours[end : end + self.rng.randint(0, 3)]) if follows else ()
        self.network.append(Fetched(fetch, truncate_to, records, leader.log.high_watermark))

    @staticmethod
    def common_end(ours: list[Record], theirs: list[Record]) -> int:
        pairs = zip(ours, theirs, strict=False)
        return next(
            (index for index, (one, other) in enumerate(pairs) if one != other),
            min(len(ours), len(theirs)),
        )

    def take_records(self, answer: Fetched) -> None:
        fetch = answer.fetch
        node = fetch.node
        fetch.life.is_fetching = False
        if node.life is not fetch.life or node.life.partition.leader_epoch != fetch.leader_epoch:
            return
        log = node.log
        if node.life.partition.is_leader or len(log.records) != fetch.end_offset:
            return
        if answer.truncate_to is not None:
            log.truncate(answer.truncate_to)
        log.records.extend(answer.records)
        log.high_watermark = max(log.high_watermark, min(answer.high_watermark, len(log.records)))

    def lose(self) -> None:
        """Lose a message, or only the patience for it: it may still arrive."""
        if self.network:
            message = self.rng.choice(self.network)
            fetch = message.fetch if isinstance(message, Fetched) else message
            fetch.life.is_fetching = False
            if self.rng.random() < 0.5 or isinstance(message, Fetched):
                self.network.remove(message)

    def ask_controller(self) -> None:
        _, life = self.any_running()
        if not life.changes:
            life.answer = None
            life.changes = life.keeper._changes()

    def decide(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        life = node.life
        if life is None or not life.changes or life.answer is not None:
            return
        request = request_of(node.id, life.epoch, life.changes.values())
        try:
            life.answer = self.cluster.take(
                partitions.alter_partition(self.cluster.image, self.cluster.config, request)
            )
        except RefusedError:
            life.changes = {}

    def take_answer(self) -> None:
        _, life = self.any_running()
        if life.answer is not None:
            life.keeper._take(life.changes, life.answer)
            life.changes, life.answer = {}, None

    def lose_answer(self) -> None:
        """Lose the request, or the answer to it."""
        _, life = self.any_running()
        life.changes, life.answer = {}, None

    def hear_of_metadata(self) -> None:
        node, life = self.any_running()
        if life.seen < len(self.images) - 1:
            self.publish(node, life, self.rng.randint(life.seen + 1, len(self.images) - 1))

    def publish(self, node: Node, life: Life, seen: int) -> None:
        life.seen = seen
        image = life.table.image = self.images[seen]
        topic = image.topic("t")
        assert topic is not None
        was_epoch = life.partition.leader_epoch
        life.partition.apply(topic.partitions[0], self.config, self.now_ms)
        if life.partition.leader_epoch != was_epoch:
            life.is_fetching = False
        life.keeper.note(life.partition)

    def pass_time(self) -> None:
        self.now_ms += self.rng.choice((10, 500, LAG_MS // 2, LAG_MS + 1))
        self.end_pauses()

    def end_pauses(self) -> None:
        for _, life in self.running():
            life.keeper._end_pauses(self.now_ms)

    def look_for_lag(self) -> None:
        _, life = self.any_running()
        life.keeper._look_for_lag(self.now_ms)

    def kill_process(self) -> None:
        if not self.is_one_behind:
            node, _ = self.any_running()
            self.end_life(node)

    def lose_power(self) -> None:
        """End a machine that has not flushed; only while others are there and hold what it held.

        Until it is in sync again nothing else fails: two at once are more than KIP-966 promises.
        """
        node = self.rng.choice(list(self.nodes.values()))
        state = self.cluster.state("t")
        others = [one for one in self.nodes.values() if one is not node]
        if node.life is None or any(
            one.life is None or one.is_paused or one.life.is_leaving for one in others
        ):
            return
        if {*state.isr, *state.elr} - {node.id}:
            self.end_life(node)
            node.log.truncate(self.rng.randint(0, len(node.log.records)))
            node.has_lost_tail = node.is_behind = True

    def pause(self) -> None:
        if not self.is_one_behind:
            node, _ = self.any_running()
            node.is_paused = True

    def wake(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        node.is_paused = False

    def end_session(self) -> None:
        for node in self.nodes.values():
            is_silent = node.life is None or node.is_paused
            if is_silent and not self.cluster.image.brokers[node.id].is_fenced:
                self.cluster.kill(node.id)
                return

    def heartbeat(self) -> None:
        """Be unfenced once the metadata seen is enough; or leave once that is granted."""
        node, life = self.any_running()
        if self.cluster.image.brokers[node.id].epoch != life.epoch:
            return
        answer = self.cluster.heartbeat(
            node.id,
            metadata_offset=self.offsets[life.seen],
            want_shut_down=life.is_leaving,
        )
        if life.is_leaving and answer.should_shut_down:
            self.end_life(node)
            node.clean_epoch = life.epoch

    def drain(self) -> None:
        if not self.is_one_behind:
            _, life = self.any_running()
            life.is_leaving = True

    def restart(self) -> None:
        for node in self.nodes.values():
            if node.life is None and self.rng.random() < 0.5:
                self.start_anew(node)
                return

    def start_anew(self, node: Node) -> None:
        self.cluster.sessions.forget(node.id)
        epoch = self.cluster.register(
            node.id, incarnation=node.life_count + 1, previous_epoch=node.clean_epoch
        )
        self.note_image()
        node.has_lost_tail = False
        self.begin_life(node, epoch)

    def rebalance(self) -> None:
        records = elections.rebalance(self.cluster.image, self.cluster.config)
        self.cluster.take(Decision(records, None))

    def heal(self) -> None:
        """Let everything be repaired, and nothing fail any more."""
        for _ in range(HEALING_ROUND_COUNT):
            self.now_ms += 200
            for node in self.nodes.values():
                node.is_paused = False
                if node.life is None:
                    self.start_anew(node)
            for repair in (
                self.heartbeat,
                self.hear_of_metadata,
                self.fetch,
                self.deliver,
                self.ask_controller,
                self.decide,
                self.take_answer,
                self.end_pauses,
            ):
                for _ in range(2 * len(IDS)):
                    repair()
                    self.note_image()
                    self.check()

    # ---- who is there, and what must hold

    @property
    def is_one_behind(self) -> bool:
        return any(node.is_behind for node in self.nodes.values())

    def running(self) -> list[tuple[Node, Life]]:
        return [
            (node, node.life)
            for node in self.nodes.values()
            if node.life is not None and not node.is_paused
        ]

    def any_running(self) -> tuple[Node, Life]:
        if not self.running():
            node = self.nodes[IDS[0]]
            node.is_paused = False
            if node.life is None:
                self.start_anew(node)
        return self.rng.choice(self.running())

    def check(self) -> None:
        state = self.cluster.state("t")
        for node in self.nodes.values():
            life = node.life
            if life is None or not life.partition.is_leader:
                continue
            known = node.log.records[: node.log.high_watermark]
            both = min(len(known), len(self.committed))
            assert known[:both] == self.committed[:both], "AcknowledgedRecordsAgree"
            self.committed += known[both:]
            if life.partition.leader_epoch == state.leader_epoch:
                covered = life.partition.maximal_isr
                assert set(state.isr) <= set(covered), "MaximalIsrCoversController"
        for member in {*state.isr, *state.elr}:
            node = self.nodes[member]
            if not node.has_lost_tail:
                node.is_behind = False
                held = node.log.records[: len(self.committed)]
                assert held == self.committed, f"EligibleReplicasHoldWhatIsCommitted: {member}"


@pytest.mark.parametrize("min_isr", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_nothing_committed_is_lost_and_nothing_else_is_committed(seed: int, min_isr: int) -> None:
    walk = Walk(seed, min_isr)
    for _ in range(STEP_COUNT):
        walk.step()


@pytest.mark.parametrize("seed", range(20))
def test_once_nothing_fails_any_more_all_are_in_sync_and_everything_is_committed(
    seed: int,
) -> None:
    walk = Walk(seed, min_isr=2)
    for _ in range(STEP_COUNT):
        walk.step()
    walk.heal()
    state = walk.cluster.state("t")
    assert set(state.isr) == set(IDS)
    log = walk.nodes[state.leader].log
    assert log.high_watermark == log.end_offset
    assert all(node.log.records == log.records for node in walk.nodes.values())


def test_the_walks_commit_records_and_change_leaders_and_in_sync_sets() -> None:
    committed = leader_epochs = isrs = 0
    for seed in range(10):
        walk = Walk(seed, min_isr=2)
        seen = set()
        for _ in range(STEP_COUNT):
            walk.step()
            seen.add(walk.cluster.state("t").isr)
        committed += len(walk.committed)
        leader_epochs += walk.cluster.state("t").leader_epoch
        isrs += len(seen)
    assert committed > 100
    assert leader_epochs > 20
    assert isrs > 30
