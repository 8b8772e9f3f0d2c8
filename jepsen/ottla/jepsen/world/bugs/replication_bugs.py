"""Mutants (deliberate bugs that the simulation must find) in replication between brokers:
watermarks, in-sync sets, fetching, truncation, producer sequences.

One mutant is not included: a `follower_fetch.may_be_uncommitted` that always returns False. No
random walk found it in 5,125 seeds. `tests/broker/replicas/test_follower_fetch.py` finds it, in its
test of records that end at the leader's log start and are not the leader's own.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ottla.broker.logs import fetch, fetch_read
from ottla.broker.logs.fetch import FetchApi
from ottla.broker.logs.fetch_read import FetchLimits, FetchTarget
from ottla.broker.replicas import follower_fetch, isr_keeper
from ottla.broker.replicas.follower_fetch import FollowedPartition, FollowerFetch
from ottla.broker.replicas.isr_changes import ChangeOutcome, IsrChange, outcome_of
from ottla.broker.replicas.isr_keeper import Changes, IsrKeeper
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.client.fetch.fetch_session import FetchSessionHandler
from ottla.jepsen.world.bugs.mutant import patched, walk_mutant
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import PartitionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.run_now import run_now
from ottla.model.settings.storage.topic import TopicConfig
from ottla.storage.log.log import Log
from ottla.storage.log.segment_files import SegmentFiles
from ottla.storage.producers import producer_state
from ottla.storage.segments.append_info import AppendInfo
from ottla.wire.messages.fetch_response import EpochEndOffset

# --- commitment -----------------------------------------------------------------------------------


def _commit_alone() -> Any:
    def advance(self: Partition, now_ms: int) -> None:
        assert self.log is not None
        if self.log.update_high_watermark(self.durable_end):
            self._port.wake(self.high_watermark_key)

    return patched(Partition, advance_high_watermark=advance)


@contextmanager
def _commit_below_min_isr() -> Iterator[None]:
    original = Partition.advance_high_watermark

    def advance(self: Partition, now_ms: int) -> None:
        wanted, self.min_isr_count = self.min_isr_count, 1
        try:
            original(self, now_ms)
        finally:
            self.min_isr_count = wanted

    with patched(Partition, advance_high_watermark=advance):
        yield


def _count_written_as_flushed() -> Any:
    def durable_end(self: Partition) -> Offset:
        assert self.log is not None
        return self.log.end_offset

    return patched(Partition, durable_end=property(durable_end))


def _acknowledge_at_once() -> Any:
    def acknowledgement(self: Partition, end_offset: Offset, acks: int) -> ErrorCode | None:
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    return patched(Partition, acknowledgement=acknowledgement)


def _serve_consumers_beyond_the_watermark() -> Any:
    original = fetch_read.read_partition

    def read(partition: Partition, target: FetchTarget, limits: FetchLimits, *rest: Any) -> Any:
        before, limits.is_from_follower = limits.is_from_follower, True
        try:
            return original(partition, target, limits, *rest)
        finally:
            limits.is_from_follower = before

    return patched(fetch, read_partition=read)


# --- in-sync replicas -----------------------------------------------------------------------------


def _forget_pending_members() -> Any:
    return patched(Partition, maximal_isr=property(lambda self: self.isr))


def _put_change_in_force_at_once() -> Any:
    """Mutant: a leader uses a requested in-sync set before the controller has accepted it."""

    def maximal_isr(self: Partition) -> frozenset[NodeId]:
        return self.isr if self.pending_change is None else self.pending_change.isr

    return patched(Partition, maximal_isr=property(maximal_isr))


@contextmanager
def _drop_change_at_any_metadata() -> Iterator[None]:
    original = Partition.apply

    def apply(self: Partition, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
        self.pending_change = None
        original(self, state, config, now_ms)

    with patched(Partition, apply=apply):
        yield


@contextmanager
def _drop_unanswered_changes() -> Iterator[None]:
    original = IsrKeeper.changes

    def changes(self: IsrKeeper, now_ms: int) -> Changes:
        for partition, change in self.unanswered.items():
            partition.abandon_isr_change(change, now_ms)
        return original(self, now_ms)

    with patched(IsrKeeper, changes=changes):
        yield


@contextmanager
def _let_go_at_the_answer() -> Iterator[None]:
    original = Partition.complete_isr_change

    def complete(self: Partition, change: IsrChange, *said: Any, **named: Any) -> None:
        original(self, change, *said, **named)
        self._leaving = frozenset()
        self._note_maximal_isr()
        if self.is_leader:
            self.advance_high_watermark(named["now_ms"])

    with patched(Partition, complete_isr_change=complete):
        yield


@contextmanager
def _settings_before_leadership() -> Iterator[None]:
    original = ReplicaManager._forget_settings

    def forget(self: ReplicaManager, delta: MetadataDelta) -> Iterable[str]:
        names = original(self, delta)
        self._apply_settings(names, self.table.image)
        return names

    with patched(ReplicaManager, _forget_settings=forget):
        yield


def _take_overtaken_for_rejected() -> Any:
    def outcome(code: int) -> ChangeOutcome:
        found = outcome_of(code)
        return ChangeOutcome.REJECTED if found is ChangeOutcome.OVERTAKEN else found

    return patched(isr_keeper, outcome_of=outcome)


def _join_before_the_epochs_start() -> Any:
    def may_join(self: Partition, replica: NodeId) -> bool:
        log, follower = self.log, self.followers.get(replica)
        if replica in self.isr or self.pending_change is not None or log is None:
            return False
        return (
            self.is_leader
            and follower is not None
            and follower.end_offset >= log.high_watermark
            and self.is_eligible(replica, follower.broker_epoch)
        )

    return patched(Partition, may_join=may_join)


def _join_whatever_it_has() -> Any:
    def may_join(self: Partition, replica: NodeId) -> bool:
        follower = self.followers.get(replica)
        is_due = replica not in self.isr and self.pending_change is None and self.is_leader
        return is_due and follower is not None and follower.end_offset >= 0

    return patched(Partition, may_join=may_join)


@contextmanager
def _keep_what_followers_said_in_earlier_epochs() -> Iterator[None]:
    original = Partition._begin_leading

    def begin(self: Partition, now_ms: int) -> None:
        kept = _SAID.get(id(self), {})
        original(self, now_ms)
        for replica, follower in self.followers.items():
            if replica in kept:
                follower.end_offset = max(follower.end_offset, kept[replica])
        self.advance_high_watermark(now_ms)

    original_apply = Partition.apply

    def apply(self: Partition, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
        for replica, follower in self.followers.items():
            _SAID.setdefault(id(self), {})[replica] = follower.end_offset
        original_apply(self, state, config, now_ms)

    _SAID.clear()
    with patched(Partition, _begin_leading=begin, apply=apply):
        yield


_SAID: dict[int, dict[NodeId, Offset]] = {}


@contextmanager
def _go_back_to_old_metadata() -> Iterator[None]:
    original = Partition.apply

    def apply(self: Partition, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
        if state.leader_epoch == self.leader_epoch:
            self.partition_epoch = min(self.partition_epoch, state.partition_epoch)
        original(self, state, config, now_ms)

    with patched(Partition, apply=apply):
        yield


@contextmanager
def _believe_fetches_of_earlier_lives() -> Iterator[None]:
    original = Partition.on_follower_fetch

    def on_fetch(self: Partition, replica: NodeId, **said: Any) -> None:
        if replica in self.followers:
            said["broker_epoch"] = max(said["broker_epoch"], self.followers[replica].broker_epoch)
        original(self, replica, **said)

    def is_registered(self: FetchApi, limits: FetchLimits) -> bool:
        broker = self.table.image.brokers.get(NodeId(limits.replica_id))
        return broker is not None and limits.replica_epoch <= broker.epoch

    with (
        patched(Partition, on_follower_fetch=on_fetch),
        patched(FetchApi, is_registered=is_registered),
    ):
        yield


# --- leading --------------------------------------------------------------------------------------


@contextmanager
def _lead_on_when_deposed() -> Iterator[None]:
    original = Partition.apply

    def apply(self: Partition, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
        was_leader, followers = self.is_leader, dict(self.followers)
        original(self, state, config, now_ms)
        if was_leader and self.log is not None and not self.is_leader and state.leader >= 0:
            self.is_leader = True
            self.followers = followers

    with patched(Partition, apply=apply):
        yield


# --- following ------------------------------------------------------------------------------------


def _never_part() -> Any:
    def divergence(log: Log, offset: Offset, epoch: Epoch) -> EpochEndOffset | None:
        return None

    return patched(fetch_read, _divergence=divergence)


def _cut_at_the_leaders_end_only() -> Any:
    def truncation_of(log: Log, diverging: EpochEndOffset) -> Offset:
        return min(Offset(diverging.end_offset), log.end_offset)

    return patched(follower_fetch, truncation_of=truncation_of)


@contextmanager
def _cut_at_the_watermark() -> Iterator[None]:
    """Mutant: truncate the log of a new follower to its own high watermark, as Kafka did before
    KIP-101."""
    original = FollowerFetch.follow

    def follow(self: FollowerFetch, partition: Partition) -> None:
        log = partition.log
        assert log is not None
        if log.end_offset > log.high_watermark:
            run_now(log.truncate_to(log.high_watermark))
        original(self, partition)

    with patched(FollowerFetch, follow=follow):
        yield


@contextmanager
def _promise_what_is_not_flushed() -> Iterator[None]:
    original = FollowerFetch._ask

    def ask(self: FollowerFetch, followed: FollowedPartition) -> None:
        partition = followed.partition
        is_awaited, partition.is_flush_awaited = partition.is_flush_awaited, False
        try:
            original(self, followed)
        finally:
            partition.is_flush_awaited = is_awaited

    with patched(FollowerFetch, _ask=ask):
        yield


def _leave_tails_unflushed() -> Any:
    return patched(Partition, _flush_if_awaited=lambda self: None)


def _keep_a_broken_session() -> Any:
    return patched(FetchSessionHandler, reset=lambda self: None)


@contextmanager
def _forget_who_to_fetch() -> Iterator[None]:
    """Mutant: when a follower opens a fetch session again, send only the partitions changed since
    the last request, instead of all partitions."""
    original = FetchSessionHandler.fill

    def fill(self: FetchSessionHandler, request: Any) -> None:
        wanted, self._wanted = self._wanted, dict(self._changed)
        try:
            original(self, request)
        finally:
            self._wanted = wanted

    with patched(FetchSessionHandler, fill=fill):
        yield


# --- idempotent producers -------------------------------------------------------------------------


def _find_no_duplicate() -> Any:
    return patched(producer_state, find_duplicate=lambda producer, header: None)


def _take_any_sequence() -> Any:
    return patched(
        producer_state,
        find_duplicate=lambda producer, header: None,
        _check_sequence=lambda producer, header: None,
    )


def _remember_one_batch() -> Any:
    def find(producer: producer_state.ProducerEntry, header: Any) -> Any:
        last = producer.batches[-1]
        is_last = header.base_sequence == last.base_sequence
        return last if is_last and header.producer_epoch == producer.epoch else None

    return patched(producer_state, find_duplicate=find)


@contextmanager
def _follow_without_sequences() -> Iterator[None]:
    original = Log.append_as_follower

    def append(self: Log, records: memoryview, *, now_ms: int) -> AppendInfo:
        kept, self.state.producers = self.state.producers, producer_state.ProducerStates()
        try:
            return original(self, records, now_ms=now_ms)
        finally:
            self.state.producers = kept

    with patched(Log, append_as_follower=append):
        yield


def _flush_nothing() -> Any:
    async def fsync(self: SegmentFiles, segment: Any) -> None:
        return

    return patched(SegmentFiles, fsync=fsync)


_row = partial(walk_mutant, subject="replication")

MUTANTS = (
    _row(
        "replication-watermark-ahead",
        "a leader commits records that only it has: the high watermark is ahead of the ISR",
        _commit_alone,
        500,
    ),
    _row(
        "replication-below-min-isr",
        "the high watermark advances with fewer in sync than min.insync.replicas (KIP-966)",
        _commit_below_min_isr,
        500,
    ),
    _row(
        "replication-written-is-flushed",
        "a leader counts written records as flushed",
        _count_written_as_flushed,
        2_000,
    ),
    _row(
        "replication-acks-at-once",
        "acks=all is answered after the append",
        _acknowledge_at_once,
        500,
    ),
    _row(
        "replication-read-uncommitted",
        "consumers read up to the end of the log",
        _serve_consumers_beyond_the_watermark,
        500,
    ),
    _row(
        "replication-pending-dropped",
        "new members do not count before the controller's answer: a pending ISR change is dropped",
        _forget_pending_members,
        2_000,
    ),
    _row(
        "replication-pending-in-force",
        "a change of the ISR takes effect before the controller has accepted it",
        _put_change_in_force_at_once,
        2_000,
    ),
    _row(
        "replication-change-forgotten",
        "metadata of the same partition epoch cancels a pending ISR change",
        _drop_change_at_any_metadata,
        5_000,
    ),
    _row(
        "replication-answer-lost",
        "an ISR change whose response is lost is not retried",
        _drop_unanswered_changes,
        5_000,
        is_quick=False,
    ),
    _row(
        "replication-overtaken",
        "an outdated ISR change counts as rejected",
        _take_overtaken_for_rejected,
        20_000,
        is_quick=False,
    ),
    _row(
        "replication-leaver-let-go",
        "acks=all ignores a member that leaves the ISR before the metadata contain it",
        _let_go_at_the_answer,
        20_000,
        is_quick=False,
    ),
    _row(
        "replication-settings-first",
        "a deposed leader commits by a lower min.insync.replicas that came with its deposition",
        _settings_before_leadership,
        5_000,
        is_quick=False,
    ),
    _row(
        "replication-join-early",
        "a replica joins the ISR at the high watermark, below the epoch's start",
        _join_before_the_epochs_start,
        5_000,
        is_quick=False,
    ),
    _row(
        "replication-join-any",
        "a replica joins the ISR at any log end offset",
        _join_whatever_it_has,
        500,
    ),
    _row(
        "replication-old-promises",
        "fetch offsets of an earlier epoch count in the next one",
        _keep_what_followers_said_in_earlier_epochs,
        5_000,
    ),
    _row(
        "replication-old-metadata",
        "metadata older than the controller's last response revert the ISR",
        _go_back_to_old_metadata,
        20_000,
        is_quick=False,
    ),
    _row(
        "replication-earlier-life",
        "a fetch of an earlier process of the follower counts (KIP-903)",
        _believe_fetches_of_earlier_lives,
        20_000,
        is_quick=False,
    ),
    _row("replication-deposed", "a deposed leader continues to lead", _lead_on_when_deposed, 500),
    _row(
        "replication-never-part",
        "a leader does not check whether the follower's log diverges from its own",
        _never_part,
        2_000,
    ),
    _row(
        "replication-cut-too-little",
        "a follower truncates to the leader's end of an epoch, not to its own (KIP-279)",
        _cut_at_the_leaders_end_only,
        20_000,
        is_quick=False,
    ),
    _row(
        "replication-cut-too-much",
        "a new follower truncates to its own high watermark (KIP-101)",
        _cut_at_the_watermark,
        2_000,
    ),
    _row(
        "replication-promise-unflushed",
        "a follower fetches from its written end, even if flushes are required",
        _promise_what_is_not_flushed,
        5_000,
    ),
    _row(
        "replication-tail-unflushed",
        "a new leader flushes its older records only at the next append",
        _leave_tails_unflushed,
        5_000,
    ),
    _row(
        "replication-session-kept",
        "a follower continues its fetch session after a lost response",
        _keep_a_broken_session,
        2_000,
        is_quick=False,
    ),
    _row(
        "replication-session-dropped",
        "an evicted fetch session is opened again without its idle partitions",
        _forget_who_to_fetch,
        5_000,
    ),
    _row(
        "replication-duplicate",
        "a retried batch is not recognised",
        _find_no_duplicate,
        500,
    ),
    _row(
        "replication-any-sequence",
        "a retried batch is appended again",
        _take_any_sequence,
        500,
    ),
    _row(
        "replication-one-batch",
        "only the last batch of a producer is remembered",
        _remember_one_batch,
        2_000,
    ),
    _row(
        "replication-sequences-unseen",
        "followers lose sequence numbers: a duplicate is not detected after a failover",
        _follow_without_sequences,
        2_000,
    ),
    _row(
        "replication-flush-nothing",
        "a log reports written records as flushed",
        _flush_nothing,
        2_000,
    ),
)
