"""Pushes on their way in: unpacked, decoded, taken apart and labelled, then handed on.

One worker thread does the work, many pushes a turn, because going to a thread and back costs as
much as several of them.  The loop queues a push and, later, hands on what came of it.  Whether a
small push is sound the loop sees by itself, in a tenth of the time that the way to the thread
takes: so it is answered at once, and what is left to do with it can wait until others have come.
Bounded in pushes and bytes: what does not fit is refused at once, as THROTTLING_QUOTA_EXCEEDED.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import KIB, MIB
from ottla.telemetry.client_labels import ClientLabels
from ottla.telemetry.client_series import ClientSeries
from ottla.telemetry.exporter import LabelledPush, Sink
from ottla.telemetry.otlp import decode, label, points_of
from ottla.telemetry.otlp_bounds import RESOURCES_MAX, UNSPREAD_BYTES_MAX
from ottla.telemetry.outline import Outline, Outlines, Value, taken_apart
from ottla.telemetry.unpack import unpack
from ottla.wire.compression import Codec

PENDING_PUSHES_MAX = 4_096
"""Pushes waiting for the worker; more are refused until it has caught up."""
PENDING_BYTES_MAX = 32 * MIB
"""Their payloads in all, as they came."""
TURN_PUSHES_MAX = 16
"""Pushes the worker takes at once: fewer cost more visits to the thread; while it works with more
the loop waits for the GIL each time that it comes back from the kernel."""
TURN_UNPACKED_BYTES_MAX = 16 * MIB
"""What a turn may unpack to before it ends early: with one push more, what the worker holds."""
TURN_POINTS_MAX = 20_000
"""Points taken apart in a turn before it ends early: with one push more, what the loop is given."""
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
SLICE_MS_MAX = 2
"""How long handing on may keep the loop before the others get their turn."""

Done = Callable[[ErrorCode | None], None]
"""Told what came of a push: None when it was taken in."""


class Pending(NamedTuple):
    """A push that waits for the worker."""

    number: int
    """Rises with every push of the process."""
    labels: ClientLabels
    codec: int
    payload: bytes
    received_ms: int
    done: Done | None
    """None when it is answered already."""


class Taken(NamedTuple):
    """What the worker made of one push."""

    error: ErrorCode | None
    push: LabelledPush | None
    """None when it was refused, or empty."""
    outline: Outline
    """Empty where nobody wants points."""
    values: list[Value]


class Ingest:
    """Takes pushes in; owns those that wait."""

    def __init__(self, *, sinks: Sequence[Sink] = (), series: ClientSeries | None = None) -> None:
        self._sinks = tuple(sinks)
        self._series = series
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._has_pending = trio.Event()
        self._is_due = trio.Event()
        self._numbers = self._handed_on = 0
        self._has_handed_on = trio.Event()
        self._outlines = None if series is None else Outlines()
        """The worker's."""
        self._gone: dict[UUID, int] = {}
        self._counts = {"pushes": 0, "bytes": 0, "refused": 0, "overflowed": 0}

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
        open_answer: Done | None = done
        if len(payload) <= SMALL_BYTES_MAX:
            seen = look_at_small(payload, codec)
            if isinstance(seen, ErrorCode):
                self._answer(done, seen, payload)
                return
            if seen is not None:
                self._answer(done, None, payload)
                open_answer, codec, payload = None, Codec.NONE, seen
        self._numbers += 1
        self._pending.append(
            Pending(self._numbers, labels, codec, payload, received_ms, open_answer)
        )
        self._pending_bytes += len(payload)
        self._has_pending.set()
        if open_answer is not None or len(self._pending) >= GATHER_PUSHES:
            self._is_due.set()

    def forget(self, instance_id: UUID) -> None:
        """Drop the series of a client that went, or that now reports other metrics.

        What it pushed before still goes to the sinks, but makes no series any more.
        """
        if self._series is not None:
            self._series.forget(instance_id)
            self._gone[instance_id] = self._numbers

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
            taken = await trio.to_thread.run_sync(take_in, turn, self._outlines, limiter=limiter)
            for _ in taken:
                self._pending_bytes -= len(self._pending.popleft().payload)
            if len(self._pending) < GATHER_PUSHES and all(
                pending.done is None for pending in self._pending
            ):
                self._is_due = trio.Event()
            await self._hand_on(turn, taken)
            self._handed_on = turn[len(taken) - 1].number
            self._has_handed_on.set()

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
            if pending.done is not None:
                self._answer(pending.done, each.error, pending.payload)
            is_gone = self._gone.get(pending.labels.client_instance_id, 0) >= pending.number
            if self._series is not None and each.outline and not is_gone:
                self._series.apply(pending.labels, each.outline, each.values)
            if time.monotonic() >= slice_end:
                await trio.lowlevel.checkpoint()
                slice_end = time.monotonic() + SLICE_MS_MAX / 1_000


def look_at_small(payload: bytes, codec: int) -> bytes | ErrorCode | None:
    """Unpack a small payload and see whether it is sound; return what it holds, or what is wrong.

    None when that is not to be told so quickly: the worker has the time.
    """
    try:
        data = unpack(payload, codec, bytes_max=SMALL_UNPACKED_BYTES_MAX)
        metrics = decode(data)
    except RefusedError as error:
        return None if error.code is ErrorCode.TELEMETRY_TOO_LARGE else error.code
    except CorruptDataError:
        return ErrorCode.INVALID_RECORD
    return data if len(metrics.resource_metrics) <= RESOURCES_MAX else None


def take_in(turn: Sequence[Pending], outlines: Outlines | None) -> list[Taken]:
    """Unpack, decode and label pushes, the first ones of `turn` at least; runs in the worker.

    They are taken apart only where there are `outlines` to share.
    """
    taken = []
    unpacked_bytes = points_count = 0
    for pending in turn:
        outline: Outline = ()
        values: list[Value] = []
        try:
            data = unpack(pending.payload, pending.codec)
            unpacked_bytes += len(data)
            metrics = decode(data)
            if outlines is not None:
                outline, values = taken_apart(points_of(metrics))
                outline = outlines.shared(outline)
            otlp = label(metrics, pending.labels)
        except RefusedError as error:
            taken.append(Taken(error.code, None, (), []))
        except CorruptDataError:
            taken.append(Taken(ErrorCode.INVALID_RECORD, None, (), []))
        else:
            push = LabelledPush(pending.labels, pending.received_ms, otlp) if otlp else None
            taken.append(Taken(None, push, outline, values))
            points_count += len(values)
        if unpacked_bytes >= TURN_UNPACKED_BYTES_MAX or points_count >= TURN_POINTS_MAX:
            break
    return taken
