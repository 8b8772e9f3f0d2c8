"""Results of one request that were come to in two places, in the request's order.  Pure."""

from collections.abc import Iterable, Mapping
from typing import Any


def woven(count: int, ours: Mapping[int, Any], others: Iterable[Any]) -> list[Any]:
    """Return `count` results: ours at their places, and between them the others in order."""
    left = iter(others)
    return [ours[index] if index in ours else next(left) for index in range(count)]
