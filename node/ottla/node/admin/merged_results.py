"""Merges the results of one request, of which each of two nodes has decided a part, in the order of
the request. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any


def merged(count: int, ours: Mapping[int, Any], others: Iterable[Any]) -> list[Any]:
    """Return the `count` results of a request in its order, merged from two nodes. The results in
    `ours` are placed at their indexes, and `others` fill the remaining places in order."""
    left = iter(others)
    return [ours[index] if index in ours else next(left) for index in range(count)]
