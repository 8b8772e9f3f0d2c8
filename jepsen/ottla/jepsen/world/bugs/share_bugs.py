"""Mutants (deliberate bugs that the simulation must find) in share groups: deliveries,
acknowledgements, and the durable state of both."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import ShareState, StateBatch
from ottla.broker.share_state import share_partition_state
from ottla.broker.share_state.share_partition_state import SharePartitionState, Update
from ottla.broker.share_state.share_state_shard import ShareStateShard
from ottla.broker.shares.dead_letter_topic import HEADER_PREFIX
from ottla.broker.shares.dead_letters import DeadLetter, LetterStep
from ottla.broker.shares.dead_letters_driver import DeadLetterSender
from ottla.broker.shares.delivery_window import TERMINAL, DeliveryState, Span
from ottla.broker.shares.led_share import LedShare
from ottla.broker.shares.letter_batches import LetterBatch
from ottla.broker.shares.ordering.delivery_order import DeliveryOrder
from ottla.broker.shares.share_partition import SharePartition, ShareRules
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched, walk_mutant
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.records import Record


def _nothing(*arguments: Any, **more: Any) -> None:
    """Do nothing. A mutant installs this function in place of a function of the code under test."""


# --- deliveries -----------------------------------------------------------------------------------


def _locks_stay() -> Any:
    return patched(SharePartition, end_locks=lambda self, now_ms: False)


def _sessions_keep_records() -> Any:
    return patched(SharePartition, release_member=lambda self, member_id, now_ms: False)


@contextmanager
def _one_delivery_too_many() -> Iterator[None]:
    original = SharePartition.load.__func__  # type: ignore[attr-defined]  # a class method has it

    def load(cls: type[SharePartition], state: ShareState, rules: ShareRules) -> SharePartition:
        limit = rules.delivery_count_limit + 1
        found: SharePartition = original(cls, state, rules._replace(delivery_count_limit=limit))
        return found

    with patched(SharePartition, load=classmethod(load)):
        yield


def _pending_is_available() -> Any:
    available = property(lambda span: span.state == DeliveryState.AVAILABLE)
    return patched(Span, is_available=available)


@contextmanager
def _renewed_lock_stays() -> Iterator[None]:
    """Mutant: when an acquisition lock of a share group ends, postpone the end of all later locks
    by one lock duration."""
    original = SharePartition.end_locks

    def end_locks(self: SharePartition, now_ms: int) -> bool:
        has_ended = original(self, now_ms)
        if self.next_lock_end_ms is not None:
            self._lock_end_ms += self.rules.lock_duration_ms
        return has_ended

    with patched(SharePartition, end_locks=end_locks):
        yield


# --- acknowledgements -----------------------------------------------------------------------------


@contextmanager
def _late_acknowledgement_counts() -> Iterator[None]:
    """Mutant: report success for acknowledgements of records whose acquisition by the share group
    member has ended, instead of INVALID_RECORD_STATE."""
    original = SharePartition.acknowledge

    def acknowledge(self: SharePartition, member_id: str, acks: Any, now_ms: int) -> Any:
        try:
            return original(self, member_id, acks, now_ms)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.INVALID_RECORD_STATE:
                raise
            return None

    with patched(SharePartition, acknowledge=acknowledge):
        yield


@contextmanager
def _failed_write_counts() -> Iterator[None]:
    original = SharePartition.on_written

    def on_written(self: SharePartition, code: ErrorCode, now_ms: int) -> Any:
        return original(self, ErrorCode.NONE, now_ms)

    with patched(SharePartition, on_written=on_written):
        yield


def _start_passes_unwritten() -> Any:
    settled = property(lambda span: span.state in TERMINAL)
    return patched(Span, is_settled=settled)


@contextmanager
def _start_passes_gap() -> Iterator[None]:
    """Mutant: move the share partition's start offset to the end of the last acknowledged or
    archived records, past earlier records that were not delivered yet."""
    original = SharePartition.next_write

    def next_write(self: SharePartition) -> Any:
        found = original(self)
        if found is None:
            return None
        ends = [span.last + 1 for span in self.window.spans if span.state in TERMINAL]
        return found._replace(start_offset=max([found.start_offset, *ends]))

    with patched(SharePartition, next_write=next_write):
        yield


# --- durable state --------------------------------------------------------------------------------


@contextmanager
def _batches_not_loaded() -> Iterator[None]:
    original = SharePartition.load.__func__  # type: ignore[attr-defined]  # a class method has it

    def load(cls: type[SharePartition], state: ShareState, rules: ShareRules) -> SharePartition:
        found: SharePartition = original(cls, state._replace(batches=()), rules)
        return found

    with patched(SharePartition, load=classmethod(load)):
        yield


@contextmanager
def _gaps_loaded_as_archived() -> Iterator[None]:
    original = SharePartition.load.__func__  # type: ignore[attr-defined]  # a class method has it

    def load(cls: type[SharePartition], state: ShareState, rules: ShareRules) -> SharePartition:
        found: SharePartition = original(cls, state, rules)
        for span in found.window.spans:
            if span.is_available and not span.count:
                span.state = DeliveryState.ARCHIVED
        return found

    with patched(SharePartition, load=classmethod(load)):
        yield


def _older_leaders_write() -> Any:
    return patched(SharePartitionState, check_leader=_nothing)


def _older_state_epochs_write() -> Any:
    return patched(SharePartitionState, check_state=_nothing)


@contextmanager
def _answered_uncommitted() -> Iterator[None]:
    original = ShareStateShard.take_effects

    def take_effects(self: ShareStateShard) -> Any:
        effects = original(self)
        effects.answers += effects.committed_answers
        effects.committed_answers = []
        return effects

    with patched(ShareStateShard, take_effects=take_effects):
        yield


@contextmanager
def _snapshot_without_batches() -> Iterator[None]:
    original = SharePartitionState.snapshot

    def snapshot(self: SharePartitionState, *arguments: Any, **more: Any) -> Any:
        return original(self, *arguments, **more)._replace(batches=())

    with patched(SharePartitionState, snapshot=snapshot):
        yield


def _late_write_replaces() -> Any:
    """Mutant: a share state write that arrives after a newer write sets the start offset back."""

    def update(
        self: SharePartitionState, *, start_offset: int, delivery_complete_count: int, batches: Any
    ) -> Update:
        return Update(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=tuple(batches),
        )

    return patched(SharePartitionState, update_of_write=update)


@contextmanager
def _merge_takes_the_last() -> Iterator[None]:
    """Mutant: an older share state write makes an acknowledged or archived record available
    again."""

    def merge(batches: Any, changes: Any, start_offset: int) -> None:
        states = {
            offset: (batch.delivery_state, batch.delivery_count)
            for batch in (*batches, *changes)
            for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1)
        }
        batches[:] = [StateBatch(offset, offset, *states[offset]) for offset in sorted(states)]

    with patched(share_partition_state, merge=merge):
        yield


# --- delays, back-off, keys and priorities --------------------------------------------------------


@contextmanager
def _delays_lost() -> Iterator[None]:
    """Mutant: a new leader delivers a share group's records without their delay, if the previous
    leader had already read them."""
    load = SharePartition.load.__func__  # type: ignore[attr-defined]  # a class method has it
    admit = SharePartition.admit
    ends: dict[int, int] = {}

    def loaded(cls: type[SharePartition], state: ShareState, rules: ShareRules) -> SharePartition:
        share: SharePartition = load(cls, state, rules)
        ends[id(share)] = share.window.end_offset
        return share

    def admitted(
        self: SharePartition, order: DeliveryOrder, first: int, *rest: Any, **more: Any
    ) -> None:
        if first < ends.get(id(self), 0):
            more["due_ms"] = 0
        admit(self, order, first, *rest, **more)

    with patched(SharePartition, load=classmethod(loaded), admit=admitted):
        yield


@contextmanager
def _backoff_not_restored() -> Iterator[None]:
    original = DeliveryOrder.add

    def add(self: DeliveryOrder, first: int, last: int, count: int, **more: Any) -> None:
        original(self, first, last, 0, **more)

    with patched(DeliveryOrder, add=add):
        yield


@contextmanager
def _release_frees_the_key() -> Iterator[None]:
    """Mutant: the next record of a key is delivered although the previous record of this key was
    only released, not acknowledged."""
    original = DeliveryOrder.on_released

    def on_released(self: DeliveryOrder, first: int, last: int, count: int, mono_ms: int) -> None:
        if last >= self.scanned_offset or not self._traits:
            original(self, first, last, count, mono_ms)
            return
        self.on_settled(first, last, mono_ms)
        for offset in range(first, last + 1):
            self._push_active(offset, offset, mono_ms + self.rules.backoff_ms(count, 0), mono_ms)

    with patched(DeliveryOrder, on_released=on_released):
        yield


def _lowest_priority_starves() -> Any:
    """Mutant: always deliver a share group the records of the highest priority that are ready, so
    that records of low priority starve."""

    def first(self: DeliveryOrder, offset_max: int) -> list[tuple[int, int]]:
        return next(heap for heap in self._ready if heap and heap[0][0] < offset_max)

    return patched(DeliveryOrder, _heap_of_turn=first)


def _delayed_by_another_clock() -> Any:
    """Mutant: deliver a share group's delayed records one second before they are due."""
    original = DeliveryOrder.ripen

    def ripen(self: DeliveryOrder, now: Instant) -> bool:
        return original(self, now._replace(wall_ms=now.wall_ms + 1_000))

    return patched(DeliveryOrder, ripen=ripen)


@contextmanager
def _dropped_record_keeps_its_key() -> Iterator[None]:
    """Mutant: a record that compaction has removed blocks the delivery of other records with its
    key."""

    def drop_ready(
        self: SharePartition, order: DeliveryOrder, first: int, last: int, now_ms: int
    ) -> None:
        self._archive(first, last)
        self.window.advance()

    with patched(SharePartition, drop_ready=drop_ready):
        yield


# --- dead letters ---------------------------------------------------------------------------------


@contextmanager
def _lost_letter_counts() -> Iterator[None]:
    """Mutant: archive records of a share group although their dead letters were not written."""
    original = SharePartition.on_letter

    def on_letter(
        self: SharePartition, letter: DeadLetter, *, is_written: bool, now_ms: int
    ) -> None:
        original(self, letter, is_written=True, now_ms=now_ms)

    with patched(SharePartition, on_letter=on_letter):
        yield


@contextmanager
def _letters_without_headers() -> Iterator[None]:
    """Mutant: write dead letters without the headers of the original records."""
    original = LetterBatch.add

    def add(self: Any, owner: object, letter: DeadLetter, record: Record) -> bool:
        own = tuple(one for one in record.headers if one[0].startswith(HEADER_PREFIX))
        return original(self, owner, letter, record._replace(headers=own))

    with patched(LetterBatch, add=add):
        yield


@contextmanager
def _written_letter_sent_again() -> Iterator[None]:
    """Mutant: send a dead letter a second time although its write was acknowledged."""
    original = SharePartition.on_letter

    def on_letter(
        self: SharePartition, letter: DeadLetter, *, is_written: bool, now_ms: int
    ) -> None:
        original(self, letter, is_written=is_written, now_ms=now_ms)
        if is_written and self.letters.get(letter.offset) is letter and not letter.is_alone:
            letter.is_alone = True
            letter.advance(LetterStep.SEND)

    with patched(SharePartition, on_letter=on_letter):
        yield


def _letters_not_sent() -> Any:
    def send(self: DeadLetterSender, led: LedShare, letters: Sequence[DeadLetter]) -> None:
        led.on_letters(letters, is_written=True)

    return patched(DeadLetterSender, send=send)


_row = partial(walk_mutant, subject="shares")


def _of_cluster(
    name: str,
    sentence: str,
    plant: Plant,
    seed_count: int = 60,
    *,
    subject: str = "shares",
    is_quick: bool = False,
) -> Mutant:
    """Return a mutant (deliberate bug) that simulations of whole clusters find. `seed_count` is the
    number of seeds within which they do."""
    return Mutant(
        name=name,
        sentence=sentence,
        engine="whole",
        subject=subject,
        plant=plant,
        seed_count=seed_count,
        is_quick=is_quick,
    )


WALKED: tuple[Mutant, ...] = (
    _row("share-locks-stay", "acquisition locks do not end", _locks_stay),
    _row("share-sessions-keep", "the end of a session releases nothing", _sessions_keep_records),
    _row(
        "share-limit-exceeded",
        "records are delivered once more than the limit",
        _one_delivery_too_many,
    ),
    _row(
        "share-pending-delivered",
        "a record is delivered while its release is not durable",
        _pending_is_available,
    ),
    _row("share-lock-late", "locks after the first end late", _renewed_lock_stays),
    _row(
        "share-late-ack",
        "an acknowledgement after the end of the lock is accepted",
        _late_acknowledgement_counts,
    ),
    _row("share-failed-write", "a write that failed counts", _failed_write_counts),
    _row(
        "share-start-early",
        "the start offset passes records whose write is not done",
        _start_passes_unwritten,
    ),
    _row("share-load-nothing", "a new leader loads no batches", _batches_not_loaded),
    _row(
        "share-load-gaps",
        "a new leader takes records that were never delivered for archived",
        _gaps_loaded_as_archived,
    ),
    _row("share-old-leader", "an older leader writes the state", _older_leaders_write),
    _row("share-old-epoch", "a leader of an older state epoch writes", _older_state_epochs_write),
    _row("share-uncommitted", "the coordinator answers before the commit", _answered_uncommitted),
    _row("share-snapshot-empty", "a snapshot has no batches", _snapshot_without_batches),
    _row(
        "share-late-write",
        "an overtaken write sets the start back",
        _late_write_replaces,
        seed_count=8_000,
    ),
    _row("share-merge-last", "a write makes settled records available", _merge_takes_the_last),
    _row(
        "share-delay-lost",
        "a new leader delivers records before they are due",
        _delays_lost,
    ),
    _row("share-backoff-lost", "a new leader begins no back-off", _backoff_not_restored),
    _row("share-key-freed", "a release lets the next record of a key pass", _release_frees_the_key),
    _row("share-low-starves", "a low priority has no turn", _lowest_priority_starves),
    _row("share-early", "delayed records are delivered early", _delayed_by_another_clock),
    _row(
        "share-key-kept",
        "a record that compaction removed blocks its key",
        _dropped_record_keeps_its_key,
    ),
    _row("share-start-gap", "the start offset passes a gap", _start_passes_gap),
    _row(
        "share-letter-lost",
        "a record is archived although its dead letter was not written",
        _lost_letter_counts,
    ),
    _row(
        "share-letter-headers",
        "a dead letter lacks the headers of its record",
        _letters_without_headers,
    ),
    _row(
        "share-letter-again",
        "a dead letter is sent again after it was acknowledged",
        _written_letter_sent_again,
    ),
)
CLUSTERED: tuple[Mutant, ...] = (
    _of_cluster("cluster-share-load-nothing", "a new leader loads no batches", _batches_not_loaded),
    _of_cluster(
        "cluster-share-late-ack",
        "an acknowledgement after the end of the lock is accepted",
        _late_acknowledgement_counts,
    ),
    _of_cluster(
        "cluster-share-start-gap",
        "the start offset passes a gap",
        _start_passes_gap,
        is_quick=True,
    ),
    _of_cluster(
        "cluster-share-uncommitted",
        "the share coordinator answers before the commit",
        _answered_uncommitted,
    ),
    _of_cluster(
        "cluster-share-old-leader",
        "an older leader writes the state",
        _older_leaders_write,
        subject="share-leaders",
        is_quick=True,
    ),
    _of_cluster("cluster-share-letters", "no dead letter is sent", _letters_not_sent),
    _of_cluster(
        "cluster-share-key-freed",
        "a release lets the next record of a key pass",
        _release_frees_the_key,
        subject="ordered-shares",
        is_quick=True,
    ),
    _of_cluster(
        "cluster-share-delay-lost",
        "a new leader delivers records before they are due",
        _delays_lost,
        subject="ordered-shares",
        is_quick=True,
    ),
    _of_cluster(
        "cluster-share-backoff-lost",
        "a new leader begins no back-off",
        _backoff_not_restored,
        subject="ordered-shares",
        is_quick=True,
    ),
    _of_cluster(
        "cluster-share-early",
        "delayed records are delivered early",
        _delayed_by_another_clock,
        subject="ordered-shares",
        is_quick=True,
    ),
)
MUTANTS = WALKED + CLUSTERED
