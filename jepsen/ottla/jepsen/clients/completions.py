"""How what a client meets becomes a completion: what is certain, and what nobody knows.

A read that fails has done nothing.  A write that fails may have been done, unless whoever refused
it says so before he does anything: such codes are named by each operation.
"""

from collections.abc import Collection, Mapping

from ottla.client.network.connection import ConnectionLostError
from ottla.jepsen.history import NO_EXTRA, EventKind, Json
from ottla.jepsen.workloads.load import Completion, Op
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError

DEADLINE_S = 10.0
"""What an operation takes at most: Jepsen's bound for a send."""
PAUSE_S = 0.1
"""After trouble: who is refused at once shall not fill the history with it."""

READS = frozenset(
    {
        "assign",
        "committed",
        "describe",
        "end-offset",
        "fetch",
        "join",
        "leave",
        "poll",
        "settle",
        "subscribe",
    }
)
TROUBLE = (RefusedError, ConnectionLostError, ProtocolError)


def ok(value: Json = None, extra: Mapping[str, Json] = NO_EXTRA) -> Completion:
    """Return that it was done."""
    return Completion(EventKind.OK, value, None, extra)


def failed(error: str, value: Json = None, extra: Mapping[str, Json] = NO_EXTRA) -> Completion:
    """Return that it certainly was not done."""
    return Completion(EventKind.FAIL, value, error, extra)


def unknown(op: Op, error: str, extra: Mapping[str, Json] = NO_EXTRA) -> Completion:
    """Return that nobody knows; a read that was not answered has not happened."""
    kind = EventKind.FAIL if op.f in READS else EventKind.INFO
    return Completion(kind, None, error, extra)


def troubled(
    op: Op, error: Exception, *, certain: Collection[ErrorCode] = (), value: Json = None
) -> Completion:
    """Return what an error of our own client means for an operation."""
    if isinstance(error, RefusedError):
        text = f"{error.code.name}: {error.message}"
        if error.code in certain:
            return failed(text, value)
    else:
        text = f"{type(error).__name__}: {error}"
    kind = EventKind.FAIL if op.f in READS else EventKind.INFO
    return Completion(kind, value, text)
