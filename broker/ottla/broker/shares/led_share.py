"""Share partition on the leader of its topic partition: loading, writing, locks and leadership.

Pure; the persister, the purgatory and the clock are parameters. A `LedShare` reads the durable
state once, as the leader in one leader epoch. It is dropped if this broker no longer leads in that
epoch, if the log fails, or if the persister fences it. The next fetch then loads a new `LedShare`.

If an administrator resets the offset, a new durable state with a higher state epoch replaces the
old state. In Kafka, the leader uses its cached state until a write is fenced, so a reset has no
effect on an idle group. Ottla's leader compares its state epoch with the durable epoch whenever a
session begins to fetch the partition.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple, Protocol
from zlib import crc32

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import (
    NO_START_OFFSET,
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
)
from ottla.broker.replicas.partition import Partition
from ottla.broker.shares.dead_letters import DeadLetter
from ottla.broker.shares.ordering.ordering_rules import ordering_rules
from ottla.broker.shares.share_figures import ReadTimes
from ottla.broker.shares.share_partition import (
    AckBatch,
    SharePartition,
    ShareRules,
    Transition,
)
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.seams import Clock
from ottla.model.settings.offset_reset import (
    BY_DURATION,
    EARLIEST,
    OffsetReset,
    parse_offset_reset,
)
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.network.purgatory import Purgatory, WaitingEntry
from ottla.storage.log.log import Log

UNAVAILABLE = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
FENCED = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))
GONE = frozenset((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
REPLACED = FENCED | GONE | {ErrorCode.INVALID_REQUEST}
"""Error codes of the persister which mean that the leader's cached state of a share partition is
outdated. INVALID_REQUEST: the state was deleted."""

LOCKS_COST = 4
"""Cost of ending the acquisition locks of a share partition and of writing its state. The unit is
the cost of reading one partition in a fetch. With a smaller value, more locks end per event-loop
iteration, which blocks the loop longer. With a larger value, records are released later if a large
number of locks end at once."""

RULES_KEPT = 1_000
"""Maximum number of distinct share group settings whose delivery rules are cached. Share partitions
with equal settings share one object."""

SPANS_PER_COST = 4
"""Number of spans (ranges of records with equal state) that are changed in the time in which a
fetch reads one partition."""

Answered = Callable[[ErrorCode], None]


class Stage(Enum):
    """Stage of a share partition between its loading and the delivery of its records."""

    LOADING = auto()
    """Stage in which the durable state of the share partition is being read or compared, or its
    start offset is being stored."""
    NEEDS_OFFSET = auto()
    """Stage in which the start offset of the share partition must be looked up by its timestamp."""
    READY = auto()
    DROPPED = auto()


class LetterSender(Protocol):
    """Interface for writing dead letters to the dead letter topics of share groups (KIP-1191)."""

    @property
    def is_enabled(self) -> bool:
        """True if the cluster supports dead letters, which requires share.version 2."""
        ...

    def send(self, led: "LedShare", letters: Sequence[DeadLetter]) -> None:
        """Write dead letters to their topics, ordered by offset. Each letter and its result are
        passed to `LedShare.on_letters` after this call has returned."""
        ...


class DeliveryPorts(NamedTuple):
    """Clock, purgatory, persister and settings that the share partitions of a broker use."""

    persister: Callable[[], SharePersister]
    purgatory: Purgatory
    clock: Clock
    settings_of: Callable[[str], ShareGroupSettings]
    """Function that returns the current settings of a share group, given its id."""
    letters: LetterSender | None = None
    """Sender of dead letters. If it is None, rejected records are archived without a dead
    letter."""


class LockTimer(WaitingEntry):
    """Timer of a share partition in the purgatory. It fires when an acquisition lock expires, a
    step of a dead letter is due, a delayed record becomes due or a back-off ends."""

    __slots__ = ("_share", "deadline_ms")
    kind = "ShareLock"

    def __init__(self, share: "LedShare", deadline_ms: int) -> None:
        super().__init__()
        self._share = share
        self.deadline_ms = deadline_ms

    @property
    def cost(self) -> int:
        """Cost of ending acquisition locks and writing the change, which grows with the number of
        spans that change. The unit is the cost of reading one partition in a fetch."""
        spans = len(self._share.share.window.spans) if self._share.has_state else 0
        return LOCKS_COST + spans // SPANS_PER_COST

    def try_complete(self) -> bool:
        """Return False: this timer ends only at its deadline."""
        return False

    def on_expire(self) -> None:
        """Release the records whose acquisition lock has expired, begin the due steps of dead
        letters, and make delayed records that are due ready for delivery."""
        self._share.send_letters()
        self._share.end_locks()
        self._share.ripen()

    def on_fault(self, fault: Exception) -> None:
        """Drop the share partition, whose state is unknown after an unexpected error."""
        self._share.drop(ErrorCode.UNKNOWN_SERVER_ERROR)


class LedShare:
    """One share partition on the leader of its topic partition, for the duration of one leader
    epoch."""

    __slots__ = (
        "_answers",
        "_is_closing",
        "_on_dropped",
        "_on_loaded",
        "_ports",
        "_rules",
        "_state_epoch",
        "_stored_start",
        "_timer",
        "_topic",
        "failure",
        "is_reading_ahead",
        "key",
        "leader_epoch",
        "partition",
        "read_times",
        "share",
        "stage",
        "started_ms",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        ports: DeliveryPorts,
        on_dropped: Callable[["LedShare"], None],
        on_loaded: Callable[[int], None] = lambda load_ms: None,
    ) -> None:
        """Create a share partition whose state is not loaded yet. `on_dropped` is called with this
        object when the share partition is dropped. `on_loaded` is called with the milliseconds from
        the first fetch until the durable state is loaded."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.stage = Stage.LOADING
        self.failure = ErrorCode.NONE
        """Error code of requests that still wait when the share partition is dropped. If it is
        NONE, these requests open the share partition again."""
        self.share: SharePartition
        """Delivery state of the share partition, which exists from stage READY on."""
        self.started_ms = ports.clock.monotonic_ms()
        self.read_times = ReadTimes()
        self._ports = ports
        self._on_dropped = on_dropped
        self._on_loaded = on_loaded
        self._state_epoch = 0
        self._stored_start = NO_START_OFFSET
        """Start offset of the share partition in the last write that succeeded, or in the loaded
        state."""
        self._answers: dict[Transition, Answered] = {}
        self._timer: LockTimer | None = None
        self._is_closing = False
        self._rules: ShareGroupSettings | None = None
        self._topic: TopicConfig | None = None
        self.is_reading_ahead = False
        """True if the log has more records to read ahead, and a fetch waits for them."""

    def __repr__(self) -> str:
        return f"LedShare({self.key.text}, {self.stage.name})"

    # ---- settings

    @property
    def settings(self) -> ShareGroupSettings:
        """Current settings of the share group that consumes this share partition."""
        return self._ports.settings_of(self.key.group_id)

    def apply_settings(self) -> ShareGroupSettings:
        """Apply and return the current settings of the share group that consumes this partition."""
        settings, topic = self.settings, self.partition.config
        has_letters = self._has_letters(settings)
        if (
            settings is not self._rules
            or topic is not self._topic
            or has_letters != self.share.rules.has_dead_letters
        ):
            self._rules, self._topic = settings, topic
            self.share.rules = self._rules_of(settings)
            rules, order = ordering_rules(settings, topic), self.share.order
            if rules != (None if order is None else order.rules):
                self.share.set_order(rules, salt=crc32(self.key.text.encode()))
        return settings

    def _rules_of(self, settings: ShareGroupSettings) -> ShareRules:
        return rules_of(settings, self._has_letters(settings))

    def _has_letters(self, settings: ShareGroupSettings) -> bool:
        sender = self._ports.letters
        return bool(settings.dead_letter_topic) and sender is not None and sender.is_enabled

    # ---- loading

    def load(self) -> None:
        """Read the durable state of the share partition from its share coordinator, and fence older
        leaders."""
        self._ports.purgatory.listen(self.partition.high_watermark_key, self)
        self._ports.persister().read(
            self.key, leader_epoch=self.leader_epoch, on_done=self._on_read
        )

    def _on_read(self, state: ShareState) -> None:
        if self.stage is Stage.DROPPED:
            return
        if state.code is not ErrorCode.NONE:
            self.drop(code_for_clients(state.code))
            return
        self._state_epoch = state.state_epoch
        if state.start_offset == NO_START_OFFSET:
            self._resolve_start()
            return
        try:
            self.share = SharePartition.load(state, self._rules_of(self.settings))
        except CorruptDataError:
            self.drop(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._stored_start = state.start_offset
        self._note_loaded()

    def _note_loaded(self) -> None:
        self._on_loaded(self._now_ms - self.started_ms)
        self._begin()

    def _resolve_start(self) -> None:
        """Choose the start offset of a new share partition according to the group's
        `share.auto.offset.reset`."""
        try:
            log = self.partition.leader_log(self.leader_epoch)
        except RefusedError as refusal:
            self.drop(refusal.code)
            return
        reset = self._reset
        if reset.strategy == BY_DURATION:
            self.stage = Stage.NEEDS_OFFSET
            self._wake()
            return
        start = log.log_start_offset if reset.strategy == EARLIEST else log.high_watermark
        self._store_start(start)

    @property
    def _reset(self) -> OffsetReset:
        return parse_offset_reset(self.settings.offset_reset)

    async def look_up_offset(self) -> None:
        """Look up the start offset of a new share partition by its timestamp. The share partition
        must be in the stage NEEDS_OFFSET."""
        duration_ms = self._reset.duration_ms
        if self.stage is not Stage.NEEDS_OFFSET:
            return
        self.stage = Stage.LOADING
        try:
            log = self.partition.leader_log(self.leader_epoch)
            end_offset = log.high_watermark
            oldest_ms = max(0, self._ports.clock.wall_ms() - (duration_ms or 0))
            found = await log.offset_for_timestamp(oldest_ms, end_offset)
        except RefusedError as refusal:
            self.drop(refusal.code)
            return
        self._store_start(end_offset if found is None else found.offset)

    def _store_start(self, start_offset: Offset) -> None:
        """Store a start offset that this leader chose for a share partition. In Kafka, the start
        offset is stored only with the first write. If the leader changes before that write, the new
        leader chooses another offset and skips records."""
        if self.stage is Stage.DROPPED:
            return

        def on_done(code: ErrorCode) -> None:
            if self.stage is Stage.DROPPED:
                return
            if code is not ErrorCode.NONE:
                self.drop(code_for_clients(code))
                return
            self.share = SharePartition(start_offset, self._rules_of(self.settings))
            self._stored_start = start_offset
            self._note_loaded()

        self._ports.persister().write(
            self.key,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=0,
            batches=(),
            on_done=on_done,
        )

    def _begin(self) -> None:
        self.stage = Stage.READY
        if self._is_closing and self._may_close:
            self.drop(ErrorCode.NONE)
        self.send_letters()
        self._wake()

    def compare(self) -> None:
        """Compare the cached state of the share partition with the durable state. If the durable
        state was reset, load it again.

        No fetch reads the share partition during the comparison. If the persister answers with an
        error, the cached state is kept, since its next write gets the same error.
        """
        if self.stage is not Stage.READY:
            return
        self.stage = Stage.LOADING

        def on_done(summary: ShareSummary) -> None:
            if self.stage is not Stage.LOADING:
                return
            is_reset = summary.code is ErrorCode.NONE and (
                summary.state_epoch != self._state_epoch
                or summary.start_offset < self._stored_start
            )
            if is_reset:
                self.drop(ErrorCode.NONE)
            else:
                self._begin()

        self._ports.persister().read_summary(
            self.key, leader_epoch=self.leader_epoch, on_done=on_done
        )

    # ---- use

    def log(self) -> Log:
        """Return the log of the topic partition. Raises RefusedError if this broker does not lead
        in this epoch."""
        return self.partition.leader_log(self.leader_epoch)

    @property
    def is_worth_reading(self) -> bool:
        """False if a fetch of this share partition now would certainly return neither records nor
        an error."""
        if self.stage is not Stage.READY or not self.is_leading:
            return True
        share, log = self.share, self.partition.log
        if share.order is not None or log is None:
            return True
        offset = share.fetch_offset()
        return offset is not None and offset < log.high_watermark

    def acknowledge(self, member_id: str, acks: Sequence[AckBatch], on_done: Answered) -> None:
        """End or renew the acquisition of records by a share group member. `on_done` is called with
        the error code once the new states are durable."""
        if self.stage is Stage.DROPPED or not self.is_leading:
            self.drop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not self.has_state:
            on_done(ErrorCode.INVALID_RECORD_STATE)
            return
        self.end_locks()
        self.apply_settings()
        try:
            transition = self.share.acknowledge(member_id, acks, self._now_ms)
        except RefusedError as refusal:
            on_done(refusal.code)
            return
        if transition is None:
            on_done(ErrorCode.NONE)
            return
        self._answers[transition] = on_done
        self.write()

    @property
    def has_state(self) -> bool:
        """True if the durable state of the share partition has been loaded."""
        return hasattr(self, "share")

    def release_member(self, member_id: str) -> None:
        """Release the records that a member has acquired, because the member's session has
        ended."""
        if self.has_state and self.share.release_member(member_id, self._now_ms):
            self.send_letters()
            self.write()
            self.set_timer()
            self._wake()

    def write(self) -> None:
        """Write the pending changes of the share partition to the persister. Has no effect while
        another write is in flight."""
        write = self.share.next_write() if self.stage is not Stage.DROPPED else None
        if write is None:
            return

        def on_done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._stored_start = max(self._stored_start, write.start_offset)
            self._on_written(code)

        self._ports.persister().write(
            self.key,
            state_epoch=self._state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.delivery_complete_count,
            batches=write.batches,
            on_done=on_done,
        )

    def _on_written(self, code: ErrorCode) -> None:
        if self.stage is Stage.DROPPED:
            return
        ended = self.share.on_written(code, self._now_ms)
        shown = code_for_clients(code)
        if code in REPLACED:
            self.drop(shown)
            return
        for transition in ended:
            if not transition.is_of_letters:
                self._answers.pop(transition)(shown)
        self.send_letters()
        if self.share.is_idle:
            if self._is_closing and self._may_close:
                self.drop(ErrorCode.NONE)
                return
        else:
            self.write()
        if self.share.order is not None:
            self.set_timer()
        self._wake()

    def end_locks(self) -> None:
        """Release the records whose acquisition lock has expired, and set the timer for the next
        expiry of a lock."""
        if self.stage is Stage.DROPPED or not self.has_state:
            return
        is_released = self.share.end_locks(self._now_ms)
        self.set_timer()
        if is_released:
            self.send_letters()
            self.write()
            self._wake()

    def set_timer(self) -> None:
        """Set the timer to the next deadline: an acquisition lock expires, a step of a dead letter
        is due, a delayed record becomes due, or a back-off ends."""
        if self.stage is Stage.DROPPED:
            return
        share, due_ms = self.share, self.share.next_lock_end_ms
        if share.letters:
            due_ms = earlier_of(due_ms, share.letters.next_due_ms)
        if share.order is not None:
            now = self.now
            step_ms = now.mono_ms if self.is_reading_ahead else share.order.next_mono_ms(now)
            due_ms = earlier_of(due_ms, step_ms)
        timer = self._timer
        if timer is not None and timer.is_waiting:
            if due_ms is not None and timer.deadline_ms <= due_ms:
                return
            self._ports.purgatory.cancel(timer)
        self._timer = None
        if due_ms is not None:
            self._timer = LockTimer(self, due_ms)
            self._ports.purgatory.watch((self._timer,), self._timer, due_ms)

    # ---- order of deliveries

    def ripen(self) -> None:
        """Make delayed records ready for delivery if their due time or back-off is over."""
        if self.stage is Stage.DROPPED or not self.has_state or self.share.order is None:
            return
        is_woken = self.share.order.ripen(self.now) or self.is_reading_ahead
        self.is_reading_ahead = False
        self.set_timer()
        if self._is_closing and self._may_close:
            self.drop(ErrorCode.NONE)
        elif is_woken:
            self._wake()

    @property
    def _may_close(self) -> bool:
        """True if the share partition can be dropped from memory without loss: all of its state is
        durable, and no record is in back-off. A back-off would start again after the next load."""
        order = self.share.order
        return self.share.is_idle and (order is None or not order.backoff_count)

    @property
    def now(self) -> Instant:
        """Current time on the monotonic clock and on the wall clock."""
        clock = self._ports.clock
        return Instant(mono_ms=clock.monotonic_ms(), wall_ms=clock.wall_ms())

    # ---- dead letters

    def send_letters(self) -> None:
        """Begin the due steps of dead letters, such as storing a state or sending the letter."""
        if self.stage is Stage.DROPPED or not self.has_state or not self.share.letters:
            return
        self.apply_settings()
        letters = self.share.begin_letter_steps(self._now_ms)
        if letters:
            sender = self._ports.letters
            assert sender is not None, "the rules have dead letters"
            sender.send(self, letters)
        self.write()
        self.set_timer()

    def on_letters(self, letters: Iterable[DeadLetter], *, is_written: bool) -> None:
        """Process the outcome of sent dead letters. A letter whose record is no longer in the log
        counts as written."""
        if self.stage is Stage.DROPPED:
            return
        now_ms = self._now_ms
        for letter in letters:
            self.share.on_letter(letter, is_written=is_written, now_ms=now_ms)
        self.send_letters()

    # ---- end

    @property
    def is_leading(self) -> bool:
        """True if this broker still leads the topic partition in the same leader epoch."""
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    def on_wake(self, key: Hashable) -> None:
        """Drop the share partition if this broker no longer leads the topic partition in the same
        epoch."""
        if not self.is_leading:
            self.drop(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def close(self) -> None:
        """Drop the share partition from memory as soon as all of its changes are durable."""
        self._is_closing = True
        if not self.has_state or (self.stage is Stage.READY and self._may_close):
            self.drop(ErrorCode.NONE)

    def keep(self) -> None:
        """Cancel an earlier call of `close`, since a member fetches the share partition again."""
        self._is_closing = False

    def drop(self, failure: ErrorCode) -> None:
        """Drop the cached state of the share partition. Acknowledgements that are not durable yet
        are answered with an error."""
        if self.stage is Stage.DROPPED:
            return
        self.stage = Stage.DROPPED
        self.failure = failure
        ports = self._ports
        ports.purgatory.unlisten(self.partition.high_watermark_key, self)
        if self._timer is not None:
            ports.purgatory.cancel(self._timer)
        self._on_dropped(self)
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer(failure if failure is not ErrorCode.NONE else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._wake()

    def _wake(self) -> None:
        self._ports.purgatory.wake(self)

    @property
    def _now_ms(self) -> int:
        return self._ports.clock.monotonic_ms()


def earlier_of(first_ms: int | None, second_ms: int | None) -> int | None:
    """Return the earlier of two times in milliseconds. None means never."""
    if first_ms is None or second_ms is None:
        return second_ms if first_ms is None else first_ms
    return min(first_ms, second_ms)


@lru_cache(maxsize=RULES_KEPT)
def rules_of(settings: ShareGroupSettings, has_dead_letters: bool) -> ShareRules:
    """Return the delivery rules for a share group's settings. Equal settings share one object.
    `has_dead_letters` is True if rejected records become dead letters."""
    return ShareRules(
        lock_duration_ms=settings.record_lock_duration_ms,
        delivery_count_limit=settings.delivery_count_limit,
        record_locks_max=settings.partition_max_record_locks,
        is_renewable=settings.is_renew_enabled,
        has_dead_letters=has_dead_letters,
    )


def code_for_clients(code: ErrorCode) -> ErrorCode:
    """Return the error code that clients of a share group get for an error code from the
    persister."""
    if code is ErrorCode.NONE or code in GONE:
        return code
    if code in UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_SERVER_ERROR


class LedShares:
    """Share partitions that are loaded or being loaded on this broker, by their key (group and
    topic partition)."""

    def __init__(self, ports: DeliveryPorts, on_loaded: Callable[[int], None]) -> None:
        """Create an empty table of share partitions. `on_loaded` is called with the loading time of
        each share partition in milliseconds."""
        self._ports = ports
        self._on_loaded = on_loaded
        self._by_key: dict[SharePartitionKey, LedShare] = {}
        self._by_group: dict[str, dict[LedShare, None]] = {}

    def __iter__(self) -> Iterator[LedShare]:
        return iter(tuple(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: SharePartitionKey) -> LedShare | None:
        """Return a share partition that is loaded or being loaded, or None if it is not in
        memory."""
        return self._by_key.get(key)

    def open(self, key: SharePartitionKey, partition: Partition) -> LedShare:
        """Return the share partition of a group on a topic partition that this broker leads. If the
        share partition is not cached, its loading begins."""
        led = self._by_key.get(key)
        if led is not None and not led.is_leading:
            led.drop(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            led = None
        if led is None:
            led = self._by_key[key] = LedShare(
                key, partition, self._ports, self._forget, self._on_loaded
            )
            self._by_group.setdefault(key.group_id, {})[led] = None
            led.load()
        else:
            led.keep()
        return led

    def of_group(self, group_id: str) -> list[LedShare]:
        """Return the share partitions of a share group that are in memory on this broker."""
        return list(self._by_group.get(group_id, ()))

    def close_group(self, group_id: str) -> None:
        """Drop from memory the share partitions of a group that has no sessions left on this
        broker."""
        for led in tuple(self._by_group.get(group_id, ())):
            led.close()

    def _forget(self, led: LedShare) -> None:
        if self._by_key.get(led.key) is led:
            del self._by_key[led.key]
        of_group = self._by_group[led.key.group_id]
        del of_group[led]
        if not of_group:
            del self._by_group[led.key.group_id]
