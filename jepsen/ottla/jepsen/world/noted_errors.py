"""Registry of unexpected errors for simulated nodes, where the first error ends the run. The module
does no I/O."""

from collections.abc import Callable

from ottla.model.unexpected_errors import UnexpectedErrors


class NotedErrors(UnexpectedErrors):
    """Registry of unexpected errors in a simulated node. A real node logs them and continues; in a
    simulation, the first one ends the run."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        super().__init__()
        self._on_error = on_error

    def note(self, owner_kind: str, owner: object, error: BaseException) -> None:
        """Count and log an unexpected error, and report it to the simulated run. The report ends
        the run."""
        super().note(owner_kind, owner, error)
        self._on_error(error)
