"""Unexpected errors that a run must not have."""

from collections.abc import Callable

from ottla.model.unexpected_errors import UnexpectedErrors


class NotedErrors(UnexpectedErrors):
    """What a node catches at its edges and serves on after: here it is the end of the run."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._on_error = on_error

    def note(self, owner_kind: str, owner: object, error: BaseException) -> None:
        """Count and log the error, and hand it on."""
        super().note(owner_kind, owner, error)
        self._on_error(error)
