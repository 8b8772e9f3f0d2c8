"""A mutant: one deliberate bug that is put into the code under test at run time, never in
production. The simulation must find it.

`Mutant.apply` patches classes and modules in place, and restores them at the end.
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
    """A deliberate bug in the code under test, and the seeds within which a search engine finds
    it."""

    name: str
    sentence: str
    """Description in one sentence of how the mutated code misbehaves."""
    engine: str
    subject: str
    """Part of Ottla under test (a subject of the search engine) in which the engine finds the
    mutant."""
    plant: Plant
    seed_count: int
    """Number of seeds, with a margin, within which a search engine finds the mutant."""
    first_seed: int = 0
    """First seed of the search for the mutant (deliberate bug)."""
    budget: int = 0
    """Maximum number of events in each run of the search for the mutant (deliberate bug). 0 means
    the search engine's default."""
    is_quick: bool = False
    """True if a search engine finds the mutant fast enough for the mutant to be part of every test
    run."""
    killed_by: tuple[str, ...] = ()
    """Names of the invariants that may reveal the mutant. Empty means any invariant."""
    equivalent: str = ""
    """Reason why the mutant probably behaves like the original code, so that no engine can find it.
    Empty if it behaves differently."""

    def apply(self) -> AbstractContextManager[None]:
        """Return a context in which the deliberate bug is active.

        Raises RefusedError if Ottla is compiled, because compiled code calls many functions
        directly, past the patch.
        """
        if installed_form() == "compiled":
            reason = f"{self.name} replaces what a compiled Ottla calls directly: plant it where "
            raise RefusedError(ErrorCode.INVALID_REQUEST, reason + "Ottla is interpreted")
        return self.plant()


def walk_mutant(
    name: str,
    sentence: str,
    plant: Plant,
    seed_count: int = 2_000,
    *,
    subject: str,
    is_quick: bool = True,
    killed_by: tuple[str, ...] = (),
) -> Mutant:
    """Return a mutant (deliberate bug) that a random walk (a run of randomly chosen actions) can
    find."""
    return Mutant(
        name=name,
        sentence=sentence,
        engine="walk",
        subject=subject,
        plant=plant,
        seed_count=seed_count,
        is_quick=is_quick,
        killed_by=killed_by,
    )


@contextmanager
def patched(owner: object, **attributes: Any) -> Iterator[None]:
    """Replace attributes of a class or module during the `with` block, and restore them at its
    end."""
    with ExitStack() as stack:
        for name, value in attributes.items():
            stack.callback(setattr, owner, name, _own(owner, name))
            setattr(owner, name, value)
        yield


def _own(owner: object, name: str) -> Any:
    """Return an attribute of a class or module in its stored form: a property or function itself,
    not the value that it returns."""
    found = vars(owner).get(name)
    assert found is not None, f"{owner} has no {name} of its own to replace"
    return found
