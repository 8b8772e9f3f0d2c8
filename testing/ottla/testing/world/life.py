"""The life of an instance: one run of the user's program, from a start to its end.

A context variable, which child tasks inherit, contains the life to which a task belongs. Stores and
files use it for two purposes. They report their steps, at which the schedule may kill the instance.
They also release what an operating system releases when a process ends, such as locks on files.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

Step = Callable[[str], Awaitable[None]]
"""Async function that is called with the name of a step. It does not return if the schedule kills
the instance at this step."""


class ModuleCopies(Protocol):
    """Copies of modules that belong to one life (run of the program). `LifeModules` implements
    it."""

    def owns(self, name: str) -> bool:
        """Return whether this life (run of the program) has its own copy of the named module."""

    def in_place(self) -> AbstractContextManager[None]:
        """Return a context in which imports find the copies."""


class InstanceLife:
    """One run of an instance's program, from a start to its end."""

    def __init__(
        self,
        instance: str,
        number: int,
        directory: Path,
        step: Step,
        on_mark: Callable[[str], object] = lambda name: None,
    ) -> None:
        self.instance = instance
        """Name of the instance."""
        self.number = number
        """Number of this start of the instance, counted from 1."""
        self.directory = directory
        """Folder of the instance's files. Later lives (runs of the program) use the same folder."""
        self.step = step
        self.on_mark = on_mark
        """Function that is called with the name of each mark that the program passes."""
        self.modules: ModuleCopies | None = None
        """Copies of modules that belong to this life, or None if it has no copies."""
        self.is_over = False
        """True once the program has returned, has failed or was killed. False while the program is
        paused."""
        self._at_end: list[Callable[[], None]] = []

    def at_end(self, action: Callable[[], None]) -> None:
        """Register an action to be called when this life (run of the program) ends. If it has ended
        already, the action is called at once."""
        if self.is_over:
            action()
        else:
            self._at_end.append(action)

    def end(self) -> None:
        """End this life (run of the program), and call the actions of `at_end`, newest first. Later
        calls have no effect."""
        if self.is_over:
            return
        self.is_over = True
        while self._at_end:
            self._at_end.pop()()


LIFE: ContextVar[InstanceLife | None] = ContextVar("life", default=None)
"""Context variable with the life (run of a program) to which the current task belongs. None in a
scenario and outside of simulated worlds."""

HARNESS = "scenario"
"""Name of the scenario in timelines. No fault affects the scenario."""


def current_owner() -> str:
    """Return the name of the instance that owns the current task, or `scenario`."""
    life = LIFE.get()
    return HARNESS if life is None else life.instance


async def step(name: str) -> None:
    """Report a step of the current instance, such as `store.commit`. If the schedule has a fault
    for this step, the instance is killed or paused before this function returns. Does nothing
    outside of instances."""
    life = LIFE.get()
    if life is not None:
        await life.step(name)
