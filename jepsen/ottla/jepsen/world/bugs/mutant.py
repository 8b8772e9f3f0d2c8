"""A mutant: one bug, planted into a core while the program runs, never in production code.

`apply` patches classes and modules in place and takes everything back at the end.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from ottla.model.compiled import installed_form
from ottla.model.errors import ErrorCode, RefusedError

Plant = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug of the bank."""

    name: str
    sentence: str
    """What the mutated core does wrong."""
    engine: str
    subject: str
    """Where it is found."""
    plant: Plant
    seed_count: int
    """Number of seeds among which it is found, with room to spare."""
    first_seed: int = 0
    """The first of these seeds."""
    budget: int = 0
    """Events of a run; 0: as many as the engine takes."""
    is_quick: bool = False
    """Whether it dies fast enough for every test run."""
    killed_by: tuple[str, ...] = ()
    """Invariants that may name it; empty: any will do."""
    equivalent: str = ""
    """Why the mutant cannot be told from the original, where that is believed."""

    def apply(self) -> AbstractContextManager[None]:
        """Switch the bug on for the length of a `with`.

        Raises RefusedError on the compiled form, which calls many functions directly.
        """
        if installed_form() == "compiled":
            reason = f"{self.name} replaces what a compiled Ottla calls directly: plant it where "
            raise RefusedError(ErrorCode.INVALID_REQUEST, reason + "Ottla is interpreted")
        return self.plant()


@contextmanager
def patched(owner: object, **attributes: Any) -> Iterator[None]:
    """Replace attributes of a class or module within the `with`."""
    with ExitStack() as stack:
        for name, value in attributes.items():
            stack.callback(setattr, owner, name, _own(owner, name))
            setattr(owner, name, value)
        yield


def _own(owner: object, name: str) -> Any:
    """Return an attribute as it lies in its owner: a property or function, not what it yields."""
    found = vars(owner).get(name)
    assert found is not None, f"{owner} has no {name} of its own to replace"
    return found
