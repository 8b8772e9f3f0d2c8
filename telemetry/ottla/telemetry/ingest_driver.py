"""Pushes on their way in: unpacked, decoded, taken apart and labelled, then handed on.

One worker thread does the work, many pushes a turn, because going to a thread and back costs as
much as several of them.  The loop queues a push and, later, hands on what came of it.

A small push the loop looks at by itself, in a fraction of the time that the way to the thread
takes.  If it has the shape of the client's last one (`layout.py`), which nearly every push has,
nothing is left to do.  Else the loop sees whether it is sound and answers it, and what is left to
do can wait until others have come.

Bounded in pushes and bytes: what does not fit is refused at once, as THROTTLING_QUOTA_EXCEEDED.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import KIB, MIB
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.client_labels import ClientLabels
from ottla.telemetry.client_series import ClientSeries
from ottla.telemetry.exporter import LabelledPush, Sink
from ottla.telemetry.otlp import decode
from ottla.telemetry.otlp_bounds import RESOURCES_MAX, UNSPREAD_BYTES_MAX
from ottla.telemetry.push_work import Done, Known, Pending, Taken, Worker
from ottla.telemetry.unpack import unpack
from ottla.wire.compression import Codec

PENDING_PUSHES_MAX = 4_096
"""Pushes waiting for the worker; more are refused until it has caught up."""
PENDING_BYTES_MAX = 32 * MIB
"""Their payloads in all, as they came."""
TURN_PUSHES_MAX = 16
"""Pushes the worker takes at once: fewer cost more visits to the thread; while it works with more
the loop waits for the GIL each time that it comes back from the kernel."""
SMALL_BYTES_MAX = 4 * KIB
"""A payload whose content the loop checks.  What a client of librdkafka pushes is a quarter of
that; higher lets the loop unpack what takes longer than the way to the thread."""
SMALL_UNPACKED_BYTES_MAX = UNSPREAD_BYTES_MAX
"""What it may unpack to: as much as is within all bounds on its parts without being counted."""
GATHER_MS = 50
"""How long pushes that are answered already wait for others.  Lower visits the thread more often
than there are pushes to take along; higher has those who look at them wait."""
GATHER_PUSHES = 8
"""So many do not wait."""
MISSES_MAX = 8
"""Pushes in a row without the shape of the one before until no more is made of a client's: to find
a shape takes the worker as long as two pushes."""
SLICE_MS_MAX = 2
"""How long handing on may keep the loop before the others get their turn."""


class Ingest:
    """Takes pushes in; owns those that wait."""

    def __init__(
        self,
        *,
        sinks: Sequence[Sink] = (),
        series: ClientSeries | None = None,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self._errors = errors or UnexpectedErrors()
        self._sinks = tuple(sinks)
        self._series = series
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._has_pending = trio.Event()
        self._is_due = trio.Event()
        self._numbers = self._handed_on = 0
        self._has_handed_on = trio.Event()
        self._worker = Worker(wants_points=series is not None)
        self._known: dict[UUID, Known] = {}
        self._waiting: dict[UUID, int] = {}
        """The number of the last push that waits, of each client that has one."""
        self._gone: dict[UUID, int] = {}
        self._counts = {"pushes": 0, "bytes": 0, "refused": 0, "overflowed": 0, "known": 0}

    def submit(
        self, labels: ClientLabels, codec: int, payload: bytes, received_ms: int, done: Done
    ) -> None:
        """Queue a push that the gate let through; `done` is called once, now or from `run`."""
        if (
            len(self._pending) >= PENDING_PUSHES_MAX
            or self._pending_bytes + len(payload) > PENDING_BYTES_MAX
        ):
            self._counts["overflowed"] += 1
            done(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return
        if len(payload) > SMALL_BYTES_MAX:
            self._wait(labels, codec, payload, received_ms, done)
            return
        try:
            data = unpack(payload, codec, bytes_max=SMALL_UNPACKED_BYTES_MAX)
            if self._is_taken_as_known(labels, data, received_ms):
                self._answer(done, None, payload)
                return
            is_simple = len(decode(data).resource_metrics) <= RESOURCES_MAX
        except RefusedError as error:
            if error.code is ErrorCode.TELEMETRY_TOO_LARGE:
                self._wait(labels, codec, payload, received_ms, done)  # only for the loop, perhaps
            else:
                self._answer(done, error.code, payload)
        except CorruptDataError:
            self._answer(done, ErrorCode.INVALID_RECORD, payload)
        else:
            if is_simple:
                self._answer(done, None, payload)
                self._wait(labels, Codec.NONE, data, received_ms, None)
            else:
                self._wait(labels, codec, payload, received_ms, done)

    def forget(self, instance_id: UUID) -> None:
        """Drop the series of a client that went, or that now reports other metrics.

        What it pushed before still goes to the sinks, but makes no series any more.
        """
        self._known.pop(instance_id, None)
        if instance_id in self._waiting:
            self._gone[instance_id] = self._numbers
        if self._series is not None:
            self._series.forget(instance_id)

    def counts(self) -> Mapping[str, int]:
        """Return pushes and bytes taken in, refused and overflowed pushes, and those waiting."""
        return {**self._counts, "pending": len(self._pending), "pending_bytes": self._pending_bytes}

    async def run(self) -> None:
        """Take pushes in for as long as the broker runs; ends by being cancelled."""
        limiter = trio.CapacityLimiter(1)
        while True:
            if not self._pending:
                self._gone.clear()  # nothing they pushed before they went is left
                self._has_pending = trio.Event()
                await self._has_pending.wait()
            with trio.move_on_after(GATHER_MS / 1_000):
                await self._is_due.wait()
            turn = [
                self._pending[index] for index in range(min(len(self._pending), TURN_PUSHES_MAX))
            ]
            taken = await trio.to_thread.run_sync(self._worker.take_in, turn, limiter=limiter)
            for _ in taken:
                self._pending_bytes -= len(self._pending.popleft().payload)
            if len(self._pending) < GATHER_PUSHES and all(
                pending.done is None for pending in self._pending
            ):
                self._is_due = trio.Event()
            await self._hand_on(turn, taken)
            self._handed_on = turn[len(taken) - 1].number
            self._has_handed_on.set()

    def _wait(
        self, labels: ClientLabels, codec: int, data: bytes, received_ms: int, done: Done | None
    ) -> None:
        """Queue a push for the worker; `done` is None when it is answered already."""
        self._numbers += 1
        known = self._known.get(labels.client_instance_id)
        wants_shape = done is None and (known is None or known.misses < MISSES_MAX)
        self._pending.append(
            Pending(self._numbers, labels, codec, data, received_ms, done, wants_shape)
        )
        self._pending_bytes += len(data)
        self._waiting[labels.client_instance_id] = self._numbers
        self._has_pending.set()
        if done is not None or len(self._pending) >= GATHER_PUSHES:
            self._is_due.set()

    def _is_taken_as_known(self, labels: ClientLabels, data: bytes, received_ms: int) -> bool:
        """Hand a push on here and now, if it has the shape of the one before."""
        known = self._known.get(labels.client_instance_id)
        if known is None or known.labels != labels or labels.client_instance_id in self._waiting:
            return False
        values = known.shape.values_of(data)
        if values is None:
            return False
        known.misses = 0
        self._counts["known"] += 1
        otlp = known.head + data[known.shape.layout.resource_end :]
        pushes = [LabelledPush(known.labels, received_ms, otlp)]
        for sink in self._sinks:
            sink.offer(pushes)
        if self._series is not None:
            self._series.apply(known.labels, known.outline, values)
        return True

    def _learn(self, instance_id: UUID, taken: Taken) -> None:
        """Remember what the next push of a client may be known by."""
        before = self._known.get(instance_id)
        if taken.known is not None:
            taken.known.misses = 0 if before is None else before.misses + 1
            self._known[instance_id] = taken.known

    def _answer(self, done: Done, error: ErrorCode | None, payload: bytes) -> None:
        if error is None:
            self._counts["pushes"] += 1
            self._counts["bytes"] += len(payload)
        else:
            self._counts["refused"] += 1
        done(error)

    async def flush(self) -> None:
        """Wait until `run` has handed on what waits now."""
        end = self._numbers
        while self._handed_on < end:
            self._is_due.set()
            self._has_handed_on = trio.Event()
            await self._has_handed_on.wait()

    async def _hand_on(self, turn: Sequence[Pending], taken: Sequence[Taken]) -> None:
        pushes = [each.push for each in taken if each.push is not None]
        if pushes:
            for sink in self._sinks:
                sink.offer(pushes)
        slice_end = time.monotonic() + SLICE_MS_MAX / 1_000
        for pending, each in zip(turn, taken, strict=False):  # a turn may end early
            if each.fault is not None:
                self._errors.note("push", pending.labels.client_instance_id, each.fault)
            if pending.done is not None:
                self._answer(pending.done, each.error, pending.payload)
            instance_id = pending.labels.client_instance_id
            if self._waiting.get(instance_id) == pending.number:
                del self._waiting[instance_id]
            if self._gone.get(instance_id, 0) < pending.number:
                self._learn(instance_id, each)
                if self._series is not None and each.outline:
                    self._series.apply(pending.labels, each.outline, each.values)
            if time.monotonic() >= slice_end:
                await trio.lowlevel.checkpoint()
                slice_end = time.monotonic() + SLICE_MS_MAX / 1_000
