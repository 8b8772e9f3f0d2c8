"""The active controller in timed worlds: real decisions, appended to the real quorum's log.

It does as `controller_driver` does on trio: one decision at a time on the speculative image, the
reply once all that it rests on is committed, NOT_CONTROLLER to whoever waits when leadership ends.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.controller import brokers, elections
from ottla.controller.controller_driver import not_controller
from ottla.controller.decision import Decision
from ottla.controller.sessions import BrokerSessions
from ottla.jepsen.world.timed.raft_node import RaftNode
from ottla.jepsen.world.walk.controller_history import ControllerHistory
from ottla.metadata import fold
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, Provenance
from ottla.metadata.records import Record, decode_record, encode_record
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_OFFSET, Epoch, Offset
from ottla.model.settings.controller import ControllerConfig
from ottla.proto import controller_pb2 as pb
from ottla.raft.effects import Effects
from ottla.raft.events import AppendRequested, Event
from ottla.raft.testing.memory_log import Entry

Make = Callable[[MetadataImage, Offset], Decision[Any]]
OnImage = Callable[[MetadataImage, MetadataImage], None]
OnReply = Callable[[Any], None]
OnRefusal = Callable[[RefusedError], None]


def text_of(record: Record) -> str:
    """Return a record's bytes as text, which is what the quorum of timed worlds carries."""
    return encode_record(record).hex()


@lru_cache(maxsize=1 << 12)
def record_of(text: str) -> Record:
    """Return the record of a text."""
    return decode_record(bytes.fromhex(text))


class CommittedHistory(ControllerHistory):
    """Every image that the quorum ever committed.

    The first one is that of a cluster founded before the run, whose records are the log's first
    batch.
    """

    def __init__(self, founded: ControllerHistory) -> None:
        self.config = founded.config
        self.min_insync_replicas = founded.min_insync_replicas
        self.now_ms = founded.now_ms
        self.image = founded.image
        self.images = [founded.image]
        self.founding = tuple(founded.log)
        self.ends = [Offset(1 << 60)]
        self.log = []
        self.failover_count = 0
        self.records_left = None
        self.boundaries: set[tuple[int, Epoch]] = set()
        """Where appends ended, and in whose epoch: images lie between batches only."""
        self._steps: list[tuple[Record, ...]] = [()]
        self._end = 0

    @property
    def is_founded(self) -> bool:
        """Say whether the founding records are committed."""
        return self.ends[0] < 1 << 60

    def follow(self, committed: Sequence[Entry], on_image: OnImage) -> bool:
        """Take in what was committed since the last look; say whether there was anything."""
        if len(committed) == self._end:
            return False
        records: list[Record] = []
        for offset in range(self._end, len(committed)):
            entry = committed[offset]
            if not entry.is_leader_change:
                records.append(record_of(entry.value))
            if (offset + 1, entry.epoch) in self.boundaries:
                before = self.image
                self._take_in(tuple(records), Offset(offset + 1))
                records = []
                on_image(before, self.image)
        assert not records, "a high watermark lies within a batch"
        self._end = len(committed)
        return True

    def _take_in(self, records: tuple[Record, ...], end: Offset) -> None:
        if not self.is_founded:
            assert records == self.founding
            self.ends[0] = end
            return
        self.image = fold.apply_all(self.image, records)
        self.images.append(self.image)
        self.ends.append(end)
        self._steps.append(records)

    def index_at(self, end_offset: int) -> int:
        """Return which image a node has that applied everything below an offset; -1: none yet."""
        low, high = 0, len(self.ends)
        while low < high:
            middle = (low + high) // 2
            if self.ends[middle] <= end_offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def delta(self, base: MetadataImage, seen: int, until: int) -> MetadataDelta:
        """Return the way from one image to a later one, replayed by a broker."""
        delta = MetadataDelta(base)
        for records in self._steps[seen + 1 : until + 1]:
            for record in records:
                delta.replay(record)
        delta.apply(Provenance(Offset(self.ends[until] - 1), Epoch(1), 0))
        return delta


class _Asked(NamedTuple):
    make: Make
    on_reply: OnReply
    on_refusal: OnRefusal


class _Waiting(NamedTuple):
    offset: Offset
    reply: Any
    asked: _Asked


class ControllerSeat:
    """One voter's part as controller: active while it leads the quorum, else refusing."""

    def __init__(self, node: RaftNode, history: CommittedHistory, config: ControllerConfig) -> None:
        self.node = node
        self.epoch: Epoch | None = None
        self.image: MetadataImage = EMPTY
        """The speculative image: all that is appended, committed or not."""
        self.records_max = 10_000
        """Records of one append; fewer let a controller die within a decision."""
        self.decision_count = 0
        self._history = history
        self._config = config
        self.sessions = BrokerSessions(config.session_timeout_ms)
        self._last_appended = NO_OFFSET
        self._queue: deque[_Asked] = deque()
        self._current: tuple[_Asked, Any] | None = None
        self._batches: deque[tuple[Record, ...]] = deque()
        self._folded: MetadataImage | None = None
        self._waiting: deque[_Waiting] = deque()

    @property
    def has_open_decisions(self) -> bool:
        """Say whether anything it decided is not committed yet."""
        return self._current is not None or bool(self._waiting)

    # --- requests -----------------------------------------------------------------------------

    def decide(self, make: Make, on_reply: OnReply, on_refusal: OnRefusal) -> None:
        """Make a decision and reply when it is committed."""
        if self.epoch is None:
            on_refusal(not_controller())
            return
        self._queue.append(_Asked(make, on_reply, on_refusal))
        self._work()

    def heartbeat(
        self, request: pb.HeartbeatRequest, on_reply: OnReply, on_refusal: OnRefusal
    ) -> None:
        """Keep a broker's session, and move it to the state it wants if it may."""
        if self.epoch is None:
            on_refusal(not_controller())
            return
        try:
            steady = brokers.steady_heartbeat(
                self.image, self.sessions, request, now_ms=self.session_time_ms()
            )
        except RefusedError as refusal:
            on_refusal(refusal)
            return
        if steady is not None and self.node.applied_end_offset > self._last_appended:
            on_reply(steady)
            return
        self.decide(
            lambda image, next_offset: brokers.heartbeat(
                image,
                self._config,
                self.sessions,
                request,
                next_offset=next_offset,
                now_ms=self.session_time_ms(),
            ),
            on_reply,
            on_refusal,
        )

    # --- what it does unasked -----------------------------------------------------------------

    def look(self) -> None:
        """Notice time passing: fence who is silent."""
        now_ms = self.session_time_ms()
        if self.epoch is not None and self.sessions.expired(self.image, now_ms):
            self.attempt(
                lambda image, _: brokers.fence_expired(
                    image, self._config, self.sessions, self.session_time_ms()
                )
            )

    def elect(self) -> None:
        """Find leaders for partitions that have none."""
        self.attempt(
            lambda image, _: Decision(elections.elect_where_nobody_leads(image, self._config), None)
        )

    def rebalance(self) -> None:
        """Give leaderships back to the preferred replicas."""
        self.attempt(lambda image, _: Decision(elections.rebalance(image, self._config), None))

    def attempt(self, make: Make) -> None:
        """Decide something that nobody waits for."""
        self.decide(make, _ignore, _ignore)

    def session_time_ms(self) -> int:
        """Return the time for sessions, which have been told how long this process slept."""
        now_ms = self.node.clock.monotonic_ms()
        self.sessions.look(now_ms)
        return now_ms

    # --- being the controller, or not ---------------------------------------------------------

    def on_step(self, event: Event, effects: Effects) -> None:
        """Go on with what a step of raft makes possible."""
        if isinstance(event, AppendRequested) and effects.append and self._folded is not None:
            core = self.node.core
            assert core is not None
            assert core.epoch == self.epoch
            self.image, self._folded = self._folded, None
            end = self.node.mirror.end_offset
            self._last_appended = Offset(end - 1)
            assert (end, core.epoch) in self._history.boundaries
            self._append_next()
        self._settle_leadership()
        while self._waiting and self._waiting[0].offset < self.node.applied_end_offset:
            waiting = self._waiting.popleft()
            waiting.asked.on_reply(waiting.reply)
        self._work()

    def drop(self) -> None:
        """Forget everything, as the process ends."""
        self.epoch = None
        self.image = EMPTY
        self._queue.clear()
        self._waiting.clear()
        self._batches.clear()
        self._current = self._folded = None

    def _settle_leadership(self) -> None:
        core = self.node.core
        assert core is not None
        start = core.epoch_start_offset
        is_active = start is not None and self.node.applied_end_offset > start
        epoch = core.epoch if is_active else None
        if epoch == self.epoch:
            return
        refused = [*self._queue, *(waiting.asked for waiting in self._waiting)]
        if self._current is not None:
            refused.append(self._current[0])
        self.drop()
        for asked in refused:
            asked.on_refusal(not_controller())
        if epoch is None:
            return
        self.epoch = epoch
        at = self._history.index_at(self.node.applied_end_offset)
        self.image = EMPTY if at < 0 else self._history.images[at]
        self._last_appended = Offset(self.node.applied_end_offset - 1)
        self.sessions.reset(self.image, self.node.clock.monotonic_ms())
        if at < 0:
            founding = self._history.founding
            self.attempt(lambda image, _: Decision(founding, None, is_atomic=True))
        self.elect()

    # --- one decision after the other ---------------------------------------------------------

    def _work(self) -> None:
        while self._queue and self._current is None and self.epoch is not None:
            asked = self._queue.popleft()
            try:
                decision = asked.make(self.image, self.node.mirror.end_offset)
            except RefusedError as refusal:
                asked.on_refusal(refusal)
                continue
            self.decision_count += 1
            self._current = (asked, decision.reply)
            self._batches.extend(decision.appends(self.records_max))
            self._append_next()

    def _append_next(self) -> None:
        assert self._current is not None
        assert self.epoch is not None
        if not self._batches:
            (asked, reply), self._current = self._current, None
            self._waiting.append(_Waiting(self._last_appended, reply, asked))
            if self._last_appended < self.node.applied_end_offset and len(self._waiting) == 1:
                self._waiting.popleft()
                asked.on_reply(reply)
            return
        records = self._batches.popleft()
        # What would not fold must not be written: it is folded first.
        self._folded = fold.apply_all(self.image, records)
        # Noted before it is written: it may be committed without its writer living to see it.
        self._history.boundaries.add((self.node.mirror.end_offset + len(records), self.epoch))
        self.node.propose([text_of(record) for record in records])


def _ignore(_what: Any) -> None:
    """Nobody waits."""
