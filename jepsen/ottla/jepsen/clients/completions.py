"""Builds the completions (outcome events) of operations from the results and errors of clients. The
module does no I/O.

A failed read has no effect, so its completion is FAIL. A failed write may have taken effect, so its
completion is INFO, unless the server refused it before any effect. Each operation lists the error
codes that prove such a refusal.
"""

from collections.abc import Collection, Mapping

from ottla.client.network.connection import ConnectionLostError
from ottla.jepsen.history import NO_EXTRA, EventKind, Json
from ottla.jepsen.workloads.load import Completion, Op
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError

DEADLINE_S = 10.0
"""Time limit of a client operation in seconds. Jepsen uses the same limit for a send."""
PAUSE_S = 0.1
"""Seconds for which a load client pauses after an error. Without the pause, operations that are
refused at once would fill the history."""

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
        "start-offsets",
        "subscribe",
        "take",
    }
)
TROUBLE = (RefusedError, ConnectionLostError, ProtocolError)


def ok(value: Json = None, extra: Mapping[str, Json] = NO_EXTRA) -> Completion:
    """Return the completion (outcome event) of an operation that certainly took effect."""
    return Completion(EventKind.OK, value, None, extra)


def failed(error: str, value: Json = None, extra: Mapping[str, Json] = NO_EXTRA) -> Completion:
    """Return the completion (outcome event) of an operation that certainly did not take effect."""
    return Completion(EventKind.FAIL, value, error, extra)


def unknown(op: Op, error: str, extra: Mapping[str, Json] = NO_EXTRA) -> Completion:
    """Return the completion (outcome event) of an operation with an unknown outcome. A read that
    got no response certainly had no effect, so it counts as failed."""
    kind = EventKind.FAIL if op.f in READS else EventKind.INFO
    return Completion(kind, None, error, extra)


def troubled(
    op: Op, error: Exception, *, certain: Collection[ErrorCode] = (), value: Json = None
) -> Completion:
    """Return the completion (outcome event) of an operation that failed with an error of Ottla's
    own client. The error codes in `certain` prove that the operation had no effect."""
    if isinstance(error, RefusedError):
        text = f"{error.code.name}: {error.message}"
        if error.code in certain:
            return failed(text, value)
    else:
        text = f"{type(error).__name__}: {error}"
    kind = EventKind.FAIL if op.f in READS else EventKind.INFO
    return Completion(kind, value, text)
