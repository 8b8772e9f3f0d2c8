"""Ingestion of metrics that clients push: decompression, decoding, labelling, and delivery to the
exporters.

One worker thread processes many pushes at a time, because switching to a thread and back costs as
much as processing several pushes. The event loop queues a push and later delivers the result.

The event loop processes a small push itself, in a fraction of the time that the switch to the
thread takes. Nearly every push equals the client's previous push except for its numbers
(`layout.py`). Such a push needs no other processing. For any other small push, the loop only
checks whether the push is valid, and responds. The remaining work waits until more pushes have
arrived.

The number and the total size of waiting pushes are limited. A push that exceeds a limit is refused
at once with THROTTLING_QUOTA_EXCEEDED.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import KIB, MIB
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_series import ClientSeries
from ottla.telemetry.clients.exporter import LabelledPush, Sink
from ottla.telemetry.clients.otlp import decode
from ottla.telemetry.clients.otlp_bounds import RESOURCES_MAX, UNSPREAD_BYTES_MAX
from ottla.telemetry.clients.push_work import Done, LastPush, ParsedPush, WaitingPush, Worker
from ottla.telemetry.clients.unpack import unpack
from ottla.wire.compression import Codec

PENDING_PUSHES_MAX = 4_096
"""Maximum number of clients' pushes that wait for the worker thread. Above this number, pushes are
refused until the thread has caught up."""
PENDING_BYTES_MAX = 32 * MIB
"""Maximum total size in bytes of the payloads of pushes that wait for the worker thread, as
received."""
TURN_PUSHES_MAX = 16
"""Maximum number of clients' pushes that the worker thread processes in one batch.

A smaller number costs more thread switches. With a larger number, the event loop waits longer for
the GIL each time it returns from the kernel.
"""
SMALL_BYTES_MAX = 4 * KIB
"""Size in bytes of the largest payload of a push that the event loop itself processes. A push of a
librdkafka client has a quarter of this size. Decompressing larger payloads would take longer than
the switch to the thread."""
SMALL_UNPACKED_BYTES_MAX = UNSPREAD_BYTES_MAX
"""Maximum decompressed size in bytes of a push that the event loop processes itself. Such a
push cannot exceed the limits on its parts (messages, texts and lists), so its parts need not be
counted."""
GATHER_MS = 50
"""Time in ms for which a push that was already answered waits for further pushes, to form one batch
for the worker thread. With a lower value, batches are smaller. With a higher value, the exporters
get pushes later."""
GATHER_PUSHES = 8
"""Number of waiting pushes that are passed to the worker thread at once, without waiting for
further pushes."""
MISSES_MAX = 8
"""Number of successive pushes of a client with different layouts (positions of the numbers) after
which the worker thread stops computing layouts for this client. Computing a layout takes as long
as processing two pushes."""
SLICE_MS_MAX = 2
"""Longest time, in ms, for which the delivery of pushes to exporters blocks the event loop before
it yields."""


class Ingest:
    """The queue of clients' pushes, and the loop that processes them with a worker thread."""

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
        self._pending: deque[WaitingPush] = deque()
        self._pending_bytes = 0
        self._has_pending = trio.Event()
        self._is_due = trio.Event()
        self._numbers = self._handed_on = 0
        self._has_handed_on = trio.Event()
        self._worker = Worker(wants_points=series is not None)
        self._known: dict[UUID, LastPush] = {}
        self._waiting: dict[UUID, int] = {}
        """Sequence number of the last push that waits to be processed, by client instance id."""
        self._gone: dict[UUID, int] = {}
        self._counts = {"pushes": 0, "bytes": 0, "refused": 0, "overflowed": 0, "known": 0}

    def submit(
        self, labels: ClientLabels, codec: int, payload: bytes, received_ms: int, done: Done
    ) -> None:
        """Queue a client's push for processing. `done` is called once with the result, either by
        this method or later by `run`.

        The caller has already refused pushes that arrive too early.
        """
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
                self._wait(labels, codec, payload, received_ms, done)  # perhaps only for the loop
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
        """Delete the metric series of a client that has disconnected, or that now reports different
        metrics.

        Earlier pushes of the client are still delivered to the exporters, but create no series.
        """
        self._known.pop(instance_id, None)
        if instance_id in self._waiting:
            self._gone[instance_id] = self._numbers
        if self._series is not None:
            self._series.forget(instance_id)

    def counts(self) -> Mapping[str, int]:
        """Return the number of accepted pushes and bytes. Also returns the numbers of pushes that
        were refused, overflowed the queue or are waiting."""
        return {**self._counts, "pending": len(self._pending), "pending_bytes": self._pending_bytes}

    async def run(self) -> None:
        """Process the queued pushes of clients until this call is cancelled."""
        limiter = trio.CapacityLimiter(1)
        while True:
            if not self._pending:
                self._gone.clear()  # no earlier push of these clients is left
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
        """Queue a push for the worker thread. `done` is None if the client has already received its
        response."""
        self._numbers += 1
        known = self._known.get(labels.client_instance_id)
        wants_shape = done is None and (known is None or known.misses < MISSES_MAX)
        self._pending.append(
            WaitingPush(self._numbers, labels, codec, data, received_ms, done, wants_shape)
        )
        self._pending_bytes += len(data)
        self._waiting[labels.client_instance_id] = self._numbers
        self._has_pending.set()
        if done is not None or len(self._pending) >= GATHER_PUSHES:
            self._is_due.set()

    def _is_taken_as_known(self, labels: ClientLabels, data: bytes, received_ms: int) -> bool:
        """Deliver a client's push at once if it has the same layout (positions of the numbers) as
        the client's previous push. Returns True if it was delivered. Returns False if the layout
        differs, or if earlier pushes of the client are still waiting."""
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

    def _learn(self, instance_id: UUID, taken: ParsedPush) -> None:
        """Cache the layout of a client's parsed push (the positions of its numbers). If the
        client's next push has the same layout, the next push need not be decoded."""
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
        """Wait until `run` has delivered to the exporters all pushes that were queued before this
        call."""
        end = self._numbers
        while self._handed_on < end:
            self._is_due.set()
            self._has_handed_on = trio.Event()
            await self._has_handed_on.wait()

    async def _hand_on(self, turn: Sequence[WaitingPush], taken: Sequence[ParsedPush]) -> None:
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
