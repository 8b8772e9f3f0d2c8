"""Counts and logs unexpected exceptions. Each of them ends only the owner in which it occurred.

An owner is a connection, a request, a partition, a group, a publisher or a background task. The
outermost function of an owner catches `Exception`, reports it to this module, and ends only that
owner. The first exception of a kind (kind of owner, exception type and raising line) is logged with
its traceback. Repetitions are logged as one line each. After `LINES_PER_KIND_MAX` lines they are
only counted. A client that repeats a request can therefore not fill a disk.
"""

import logging
from collections import Counter

from ottla.model.errors import shortened

LINES_PER_KIND_MAX = 100
"""Maximum number of log lines per kind of exception. With a smaller number, the log does not show
how often the exception occurs. A larger number fills the log."""

KINDS_MAX = 1_000
"""Maximum number of kinds of exceptions that are stored. Few lines of the program raise unexpected
exceptions, so this limit is rarely reached."""


class UnexpectedErrors:
    """The unexpected exceptions of one process, counted by kind of owner and logged."""

    __slots__ = ("_kinds", "_logger", "counts")

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("ottla.errors")
        self._kinds: Counter[tuple[str, str, str, int]] = Counter()
        self.counts: Counter[str] = Counter()
        """Number of unexpected exceptions, by kind of owner."""

    def note(self, owner_kind: str, owner: object, error: BaseException) -> None:
        """Count and log an unexpected exception that ended `owner`. `owner_kind` is the kind of
        owner: "request", "partition" and so on."""
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
    """Return file and line of the innermost frame, or ("", 0) for an error that was never
    raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ("", 0)
    return (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
