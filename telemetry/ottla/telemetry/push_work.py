"""What the worker makes of pushes: unpacked, decoded, labelled and taken apart.  Pure.

It runs in a thread of its own and shares nothing with the loop but what goes in and comes out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.limits import MIB
from ottla.telemetry.client_labels import ClientLabels
from ottla.telemetry.exporter import LabelledPush
from ottla.telemetry.layout import Layouts, PushShape
from ottla.telemetry.otlp import decode, label, points_of
from ottla.telemetry.outline import Outline, Outlines, Value, taken_apart
from ottla.telemetry.unpack import unpack

TURN_UNPACKED_BYTES_MAX = 16 * MIB
"""What a turn may unpack to before it ends early: with one push more, what the worker holds."""
TURN_POINTS_MAX = 20_000
"""Points taken apart in a turn before it ends early: with one push more, what the loop is given."""

Done = Callable[[ErrorCode | None], None]
"""Told what came of a push: None when it was taken in."""


class Known:
    """What is known of a client's pushes since the worker saw one."""

    __slots__ = ("head", "labels", "misses", "outline", "shape")

    def __init__(
        self, labels: ClientLabels, outline: Outline, shape: PushShape, head: bytes
    ) -> None:
        self.labels = labels
        self.outline = outline
        self.shape = shape
        self.head = head
        """What stands in the labelled push for all up to the end of the resource."""
        self.misses = 0
        """Pushes in a row that had another shape than the one before."""


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
    wants_shape: bool = False
    """Whether the next push may be known by the shape of this one."""


class Taken(NamedTuple):
    """What the worker made of one push."""

    error: ErrorCode | None
    push: LabelledPush | None
    """None when it was refused, or empty."""
    outline: Outline
    """Empty where nobody wants points."""
    values: list[Value]
    known: Known | None
    """What the next push may be known by."""
    fault: Exception | None = None
    """The bug of ours that it met."""


class Worker:
    """What is done in the worker thread; owns what it remembers from turn to turn."""

    def __init__(self, *, wants_points: bool) -> None:
        self._wants_points = wants_points
        self._outlines = Outlines()
        self._layouts = Layouts()

    def take_in(self, turn: Sequence[Pending]) -> list[Taken]:
        """Unpack, decode, label and take apart pushes, the first ones of `turn` at least."""
        taken: list[Taken] = []
        unpacked_bytes = points_count = 0
        for pending in turn:
            try:
                data = unpack(pending.payload, pending.codec)
                unpacked_bytes += len(data)
                each = self._take_in_one(pending, data)
            except RefusedError as error:
                each = Taken(error.code, None, (), [], None)
            except CorruptDataError:
                each = Taken(ErrorCode.INVALID_RECORD, None, (), [], None)
            except Exception as fault:
                each = Taken(ErrorCode.UNKNOWN_SERVER_ERROR, None, (), [], None, fault)
            taken.append(each)
            points_count += len(each.values)
            if unpacked_bytes >= TURN_UNPACKED_BYTES_MAX or points_count >= TURN_POINTS_MAX:
                break
        return taken

    def _take_in_one(self, pending: Pending, data: bytes) -> Taken:
        metrics = decode(data)
        outline: Outline = ()
        values: list[Value] = []
        if self._wants_points or pending.wants_shape:
            outline, values = taken_apart(points_of(metrics))
            outline = self._outlines.shared(outline)
        otlp = label(metrics, pending.labels)
        if not otlp:
            return Taken(None, None, (), [], None)
        known = self._known_by(pending, data, otlp, outline, values)
        push = LabelledPush(pending.labels, pending.received_ms, otlp)
        return Taken(None, push, outline, values, known)

    def _known_by(
        self, pending: Pending, data: bytes, otlp: bytes, outline: Outline, values: list[Value]
    ) -> Known | None:
        shape = self._layouts.shape_of(data, values) if pending.wants_shape and values else None
        if shape is None:
            return None
        rest = data[shape.layout.resource_end :]
        if not otlp.endswith(rest):  # written in another order than we write it
            return None
        return Known(pending.labels, outline, shape, otlp[: len(otlp) - len(rest)])
