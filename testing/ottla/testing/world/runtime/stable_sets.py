"""Sets whose order does not depend on the hash seed of Python's process (PYTHONHASHSEED).

The order of a set of texts differs between processes. During a run, modules of aiokafka use these
sets instead of `set` and `frozenset`, because aiokafka sends topics in the order of its sets.
"""

from collections.abc import Callable, Iterator
from typing import Any


def _sorted(raw: Iterator[Any]) -> Iterator[Any]:
    """Return the elements in ascending order. Elements that have no order, such as tasks, keep the
    order of their hashes."""
    elements = list(raw)
    try:
        elements.sort()
    except TypeError:
        return iter(elements)
    return iter(elements)


class StableSet(set[Any]):
    """A `set` that is iterated in ascending order."""

    def __iter__(self) -> Iterator[Any]:
        return _sorted(super().__iter__())

    def pop(self) -> Any:
        """Remove and return the smallest element. Raises KeyError if the set is empty."""
        for element in self:
            self.remove(element)
            return element
        raise KeyError("pop from an empty set")


class StableFrozenSet(frozenset[Any]):
    """A `frozenset` that is iterated in ascending order."""

    def __iter__(self) -> Iterator[Any]:
        return _sorted(super().__iter__())


def _of_own_type(base: type, name: str) -> Callable[..., Any]:
    method = getattr(base, name)

    def operation(self: Any, *others: Any) -> Any:
        found = method(self, *others)
        return found if found is NotImplemented else type(self)(found)

    operation.__name__ = name
    return operation


for _base, _stable in ((set, StableSet), (frozenset, StableFrozenSet)):
    for _name in (
        *("copy", "union", "intersection", "difference", "symmetric_difference"),
        *("__or__", "__and__", "__sub__", "__xor__"),
        *("__ror__", "__rand__", "__rsub__", "__rxor__"),
    ):
        setattr(_stable, _name, _of_own_type(_base, _name))
