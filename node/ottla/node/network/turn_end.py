"""Functions to be called once, at the end of an event-loop iteration that serves connections. Pure.

For example, the decisions of several requests in an iteration are written together, and the
responses are sent with all other responses of the iteration. No additional task and no further
iteration is needed.
"""

from collections.abc import Callable

from ottla.model.unexpected_errors import UnexpectedErrors


class TurnEnd:
    """Functions to be called at the end of the current event-loop iteration, for all its requests
    together."""

    __slots__ = ("is_coming", "turn_count", "works")

    def __init__(self) -> None:
        self.is_coming = False
        """True during an event-loop iteration, until the functions scheduled for its end run."""
        self.turn_count = 0
        """Number of event-loop iterations so far, including the current one."""
        self.works: dict[Callable[[], None], None] = {}
        """Functions scheduled for the end of the event-loop iteration, each once; empty in most
        iterations."""

    def begin(self) -> None:
        """Record the start of an event-loop iteration. Until the end of the iteration, `call`
        accepts functions."""
        self.is_coming = True
        self.turn_count += 1

    def call(self, work: Callable[[], None]) -> bool:
        """Schedule a function to be called once at the end of this event-loop iteration. Returns
        False, and schedules nothing, outside an iteration."""
        if self.is_coming:
            self.works[work] = None
        return self.is_coming

    def end(self, errors: UnexpectedErrors) -> None:
        """Call the functions scheduled for the end of the event-loop iteration. `call` returns
        False while they run."""
        self.is_coming = False
        if self.works:
            works, self.works = self.works, {}
            for work in works:
                try:
                    work()
                except Exception as fault:
                    errors.note("turn", work, fault)
