"""Processing of clients' pushes in the worker thread: decompress, decode, label, convert to points.
Pure.

The worker thread and the event loop share only the arguments and results of this processing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import MIB
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.layout import Layouts, PushShape
from ottla.telemetry.clients.otlp import decode, label, points_of
from ottla.telemetry.clients.outline import Outline, Outlines, Value, split_points
from ottla.telemetry.clients.unpack import unpack

TURN_UNPACKED_BYTES_MAX = 16 * MIB
"""Decompressed size, in bytes, at which the worker thread ends a batch of pushes early. This size
and the size of one more push limit the memory of the worker."""
TURN_POINTS_MAX = 20_000
"""Number of data points at which the worker thread ends a batch of pushes early. This number and
the points of one more push limit the size of a batch's result."""

Done = Callable[[ErrorCode | None], None]
"""Function that is called with the result of a client's push: its error code, or None if the push
was accepted."""


class LastPush:
    """Series of a client's last push, and the positions of the numbers in its bytes (its layout).

    The client's next push need not be decoded if only the numbers at these positions differ.
    """

    __slots__ = ("head", "labels", "misses", "outline", "shape")

    def __init__(
        self, labels: ClientLabels, outline: Outline, shape: PushShape, head: bytes
    ) -> None:
        self.labels = labels
        self.outline = outline
        self.shape = shape
        self.head = head
        """Bytes of the client's last push, with its labels, up to the end of its resource."""
        self.misses = 0
        """Number of successive pushes of the client whose layout (the positions of the numbers)
        differed from the previous push."""


class WaitingPush(NamedTuple):
    """A client's push that waits to be processed by the worker thread."""

    number: int
    """Sequence number of the waiting push, which increases with every push to the process."""
    labels: ClientLabels
    codec: int
    payload: bytes
    received_ms: int
    done: Done | None
    """Function to call with the result of the push. None if the client has already received its
    response."""
    wants_shape: bool = False
    """True if the worker thread must compute the layout of this push: the positions of its numbers.
    If the client's next push has the same layout, the next push need not be decoded."""


class ParsedPush(NamedTuple):
    """Result of processing one client's push in the worker thread."""

    error: ErrorCode | None
    push: LabelledPush | None
    """The client's push with its labels. None if the push was refused or is empty."""
    outline: Outline
    """Series of the client's push. Empty if no exporter needs data points."""
    values: list[Value]
    known: LastPush | None
    """Series of the client's push, and the positions of its numbers (its layout). None if no layout
    was requested, or if the push cannot have a layout."""
    fault: Exception | None = None
    """Unexpected exception during the processing of the push, which is a bug in the broker. None if
    no exception was raised."""


class Worker:
    """Processor of clients' pushes in the worker thread. It keeps the outlines (lists of series)
    and layouts (positions of the numbers) of pushes between batches."""

    def __init__(self, *, wants_points: bool) -> None:
        self._wants_points = wants_points
        self._outlines = Outlines()
        self._layouts = Layouts()

    def take_in(self, turn: Sequence[WaitingPush]) -> list[ParsedPush]:
        """Decompress, decode, label and convert a batch of clients' pushes. Returns the results of
        the processed pushes, in order. At least the first push of `turn` is processed, but possibly
        not all of them."""
        taken: list[ParsedPush] = []
        unpacked_bytes = points_count = 0
        for pending in turn:
            try:
                data = unpack(pending.payload, pending.codec)
                unpacked_bytes += len(data)
                each = self._take_in_one(pending, data)
            except RefusedError as error:
                each = ParsedPush(error.code, None, (), [], None)
            except CorruptDataError:
                each = ParsedPush(ErrorCode.INVALID_RECORD, None, (), [], None)
            except Exception as fault:
                each = ParsedPush(ErrorCode.UNKNOWN_SERVER_ERROR, None, (), [], None, fault)
            taken.append(each)
            points_count += len(each.values)
            if unpacked_bytes >= TURN_UNPACKED_BYTES_MAX or points_count >= TURN_POINTS_MAX:
                break
        return taken

    def _take_in_one(self, pending: WaitingPush, data: bytes) -> ParsedPush:
        metrics = decode(data)
        outline: Outline = ()
        values: list[Value] = []
        if self._wants_points or pending.wants_shape:
            outline, values = split_points(points_of(metrics))
            outline = self._outlines.shared(outline)
        otlp = label(metrics, pending.labels)
        if not otlp:
            return ParsedPush(None, None, (), [], None)
        known = self._known_by(pending, data, otlp, outline, values)
        push = LabelledPush(pending.labels, pending.received_ms, otlp)
        return ParsedPush(None, push, outline, values, known)

    def _known_by(
        self, pending: WaitingPush, data: bytes, otlp: bytes, outline: Outline, values: list[Value]
    ) -> LastPush | None:
        shape = self._layouts.shape_of(data, values) if pending.wants_shape and values else None
        if shape is None:
            return None
        rest = data[shape.layout.resource_end :]
        if not otlp.endswith(rest):  # the client encodes fields in another order than this code
            return None
        return LastPush(pending.labels, outline, shape, otlp[: len(otlp) - len(rest)])
