"""What is done once at the end of a turn of the loop that serves connections.  Pure.

What several requests of a turn decided is written together then, and their answers leave with the
turn's others: no task is woken for it, and no further turn is needed.
"""

from collections.abc import Callable

from ottla.model.unexpected_errors import UnexpectedErrors


class TurnEnd:
    """The work that waits for the end of the turn under way."""

    __slots__ = ("_is_coming", "works")

    def __init__(self) -> None:
        self._is_coming = False
        self.works: dict[Callable[[], None], None] = {}
        """What is to be done, each once; empty in most turns."""

    def begin(self) -> None:
        """Note that a turn has begun, whose end will come."""
        self._is_coming = True

    def call(self, work: Callable[[], None]) -> bool:
        """Have work done once at the end of this turn; return False where none is under way."""
        if self._is_coming:
            self.works[work] = None
        return self._is_coming

    def end(self, errors: UnexpectedErrors) -> None:
        """Do what was asked for; what that asks for in turn belongs to no turn."""
        self._is_coming = False
        if self.works:
            works, self.works = self.works, {}
            for work in works:
                try:
                    work()
                except Exception as fault:
                    errors.note("turn", work, fault)
