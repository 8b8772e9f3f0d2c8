"""Type of the function that receives the progress of a change. Pure."""

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Function that receives sentences about the progress of a change, each without a full stop."""


def ignore(_text: str) -> None:
    """Discard a sentence about the progress of a change."""
