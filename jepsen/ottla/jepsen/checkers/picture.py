"""Builds the data for a picture of a checker's search for a sequential order: every operation, and
the longest order found. The module does no I/O."""

from collections.abc import Iterable, Sequence

from ottla.jepsen.checkers.wgl import Linearization
from ottla.jepsen.history import EventKind, Json, Operation

PICTURED_MAX = 4
"""Maximum number of failed searches that are stored for pictures. A search has failed if the calls
of its object have no valid order."""


def picture(
    found: Linearization[Json],
    operations: Sequence[Operation],
    values: Iterable[Json],
    states: Iterable[Json],
) -> dict[str, Json]:
    """Return JSON data for a picture of a search: each operation and its value, and the longest
    order that was found. The order consists of indexes of operations, each with the state after
    it."""
    return {
        "operations": [
            {
                "process": operation.invoke.process,
                "f": operation.invoke.f,
                "value": value,
                "begin": operation.invoke.index,
                "end": operation.index if operation.kind is EventKind.OK else None,
            }
            for operation, value in zip(operations, values, strict=True)
        ],
        "order": list(found.order),
        "states": list(states),
        "stuck": list(found.stuck),
    }
