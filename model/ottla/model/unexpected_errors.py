"""Counts and logs the errors nobody foresaw, at the edge of the owner they end.

An owner is a connection, a request, a partition, a group, a publisher, a background task.  Its edge
catches `Exception`, reports it here, and ends that owner alone.  The first error of a kind (owner,
type and raising line) is logged with its traceback; repetitions are one line each, and from
`LINES_PER_KIND_MAX` on only counted, so that a stranger who repeats a request cannot fill a disk.
"""

import logging
from collections import Counter

from ottla.model.errors import shortened

LINES_PER_KIND_MAX = 100
"""Log lines per kind: smaller hides how often it happens, larger fills the log."""

KINDS_MAX = 1_000
"""Kinds remembered: the raising lines of a program are few, so this bound is a last resort."""


class UnexpectedErrors:
    """The unexpected errors of one process."""

    __slots__ = ("_kinds", "_logger", "counts")

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("ottla.errors")
        self._kinds: Counter[tuple[str, str, str, int]] = Counter()
        self.counts: Counter[str] = Counter()
        """Number of errors by kind of owner."""

    def note(self, owner_kind: str, owner: object, error: BaseException) -> None:
        """Count an error that ended `owner`, one of its kind ("request", "partition", …)."""
        self.counts[owner_kind] += 1
        kind = (owner_kind, type(error).__qualname__, *_raised_at(error))
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            return
        self._kinds[kind] += 1
        seen = self._kinds[kind]
        if seen == 1:
            self._logger.error(
                "%s %s ended by an unexpected error",
                owner_kind,
                shortened(str(owner)),
                exc_info=error,
            )
        elif seen <= LINES_PER_KIND_MAX:
            self._logger.error(
                "%s %s ended by %s again (%d times; its traceback is above)",
                owner_kind,
                shortened(str(owner)),
                shortened(repr(error)),
                seen,
            )


def _raised_at(error: BaseException) -> tuple[str, int]:
    """Return file and line of the innermost frame, ("", 0) for an error that was never raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ("", 0)
    return (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
