"""Work that is done once, at the end of an event-loop iteration that serves connections. Pure.

For example, the decisions of several requests in an iteration are written together, and their
responses are sent with the others. No task is woken for them, and no further iteration is needed.
"""

from collections.abc import Callable

from ottla.model.unexpected_errors import UnexpectedErrors


class TurnEnd:
    """Work scheduled for the end of the current iteration."""

    __slots__ = ("_is_coming", "works")

    def __init__(self) -> None:
        self._is_coming = False
        self.works: dict[Callable[[], None], None] = {}
        """Scheduled functions, each once; empty in most iterations."""

    def begin(self) -> None:
        """Mark the start of an iteration: from now on `call` schedules work."""
        self._is_coming = True

    def call(self, work: Callable[[], None]) -> bool:
        """Schedule a function to be called once at the end of this iteration.  Returns False
        outside an iteration."""
        if self._is_coming:
            self.works[work] = None
        return self._is_coming

    def end(self, errors: UnexpectedErrors) -> None:
        """Call the scheduled functions.  `call` returns False while they run."""
        self._is_coming = False
        if self.works:
            works, self.works = self.works, {}
            for work in works:
                try:
                    work()
                except Exception as fault:
                    errors.note("turn", work, fault)
