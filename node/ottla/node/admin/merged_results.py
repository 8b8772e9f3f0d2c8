"""Merges the results of a request whose parts were decided by two nodes. The order of the results
is that of the request. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any


def merged(count: int, ours: Mapping[int, Any], others: Iterable[Any]) -> list[Any]:
    """Merge the results of two nodes, and return all `count` results in the order of the request.
    `ours` contains results by index; `others` contains the remaining results in order."""
    left = iter(others)
    return [ours[index] if index in ours else next(left) for index in range(count)]
