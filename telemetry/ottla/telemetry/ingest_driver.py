"""Pushes on their way in: unpacked, decoded and labelled by one worker thread, then handed on.

The loop only queues a push and, later, hands on what came of it; the work lies between, many
pushes a turn, because going to a thread and back costs as much as several of them.  Bounded in
pushes and bytes: what does not fit is refused at once, as THROTTLING_QUOTA_EXCEEDED.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import MIB
from ottla.telemetry.client_labels import ClientLabels
from ottla.telemetry.client_series import ClientSeries
from ottla.telemetry.exporter import LabelledPush, Sink
from ottla.telemetry.otlp import Point, decode, label, points_of
from ottla.telemetry.unpack import unpack

PENDING_PUSHES_MAX = 4_096
"""Pushes waiting for the worker; more are refused until it has caught up."""
PENDING_BYTES_MAX = 32 * MIB
"""Their payloads in all, as they came."""
TURN_PUSHES_MAX = 64
"""Pushes the worker takes at once: higher spares visits to the thread, lower answers sooner."""
TURN_UNPACKED_BYTES_MAX = 16 * MIB
"""What a turn may unpack to before it ends early: with one push more, what the worker holds."""
TURN_POINTS_MAX = 20_000
"""Points taken apart in a turn before it ends early: with one push more, what the loop is given."""
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
    done: Done


class Taken(NamedTuple):
    """What the worker made of one push."""

    error: ErrorCode | None
    push: LabelledPush | None
    """None when it was refused, or empty."""
    points: tuple[Point, ...]


class Ingest:
    """Takes pushes in; owns those that wait."""

    def __init__(self, *, sinks: Sequence[Sink] = (), series: ClientSeries | None = None) -> None:
        self._sinks = tuple(sinks)
        self._series = series
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._has_pending = trio.Event()
        self._numbers = 0
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
        self._numbers += 1
        self._pending.append(Pending(self._numbers, labels, codec, payload, received_ms, done))
        self._pending_bytes += len(payload)
        self._has_pending.set()

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
            turn = [
                self._pending[index] for index in range(min(len(self._pending), TURN_PUSHES_MAX))
            ]
            wants_points = self._series is not None
            taken = await trio.to_thread.run_sync(take_in, turn, wants_points, limiter=limiter)
            for _ in taken:
                self._pending_bytes -= len(self._pending.popleft().payload)
            await self._hand_on(turn, taken)

    async def _hand_on(self, turn: Sequence[Pending], taken: Sequence[Taken]) -> None:
        pushes = [each.push for each in taken if each.push is not None]
        if pushes:
            for sink in self._sinks:
                sink.offer(pushes)
        slice_end = time.monotonic() + SLICE_MS_MAX / 1_000
        for pending, each in zip(turn, taken, strict=False):  # a turn may end early
            if each.error is None:
                self._counts["pushes"] += 1
                self._counts["bytes"] += len(pending.payload)
            else:
                self._counts["refused"] += 1
            pending.done(each.error)
            is_gone = self._gone.get(pending.labels.client_instance_id, 0) >= pending.number
            if self._series is not None and each.points and not is_gone:
                self._series.apply(pending.labels, each.points)
            if time.monotonic() >= slice_end:
                await trio.lowlevel.checkpoint()
                slice_end = time.monotonic() + SLICE_MS_MAX / 1_000


def take_in(turn: Sequence[Pending], wants_points: bool) -> list[Taken]:
    """Unpack, decode and label pushes, the first ones of `turn` at least; runs in the worker."""
    taken = []
    unpacked_bytes = points_count = 0
    for pending in turn:
        try:
            data = unpack(pending.payload, pending.codec)
            unpacked_bytes += len(data)
            metrics = decode(data)
            points = tuple(points_of(metrics)) if wants_points else ()
            otlp = label(metrics, pending.labels)
        except RefusedError as error:
            taken.append(Taken(error.code, None, ()))
        except CorruptDataError:
            taken.append(Taken(ErrorCode.INVALID_RECORD, None, ()))
        else:
            push = LabelledPush(pending.labels, pending.received_ms, otlp) if otlp else None
            taken.append(Taken(None, push, points))
            points_count += len(points)
        if unpacked_bytes >= TURN_UNPACKED_BYTES_MAX or points_count >= TURN_POINTS_MAX:
            break
    return taken
