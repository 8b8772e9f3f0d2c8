"""Collects several answers (partial results) into one response of a coordinator. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.coordinators.effects import Responder


class AnswerCollector:
    """Collector of the partial results of one request, which arrive in any order. Passes all of
    them to `on_all`, ordered by position, when the last one has arrived."""

    __slots__ = ("_answers", "_on_all", "_open_count")

    def __init__(self, count: int, on_all: Callable[[Sequence[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._open_count = count
        self._on_all = on_all
        if count == 0:
            on_all([])

    def size_of(self, at: int) -> int:
        """Return the number of entries in the collected answer at a position. Returns 0 if that
        answer is an error code or missing."""
        answer = self._answers[at]
        return len(answer) if isinstance(answer, list) else 0

    def responder(self, at: int) -> Responder:
        """Return the callback that accepts the answer (partial result) at a position."""

        def take(answer: Any) -> None:
            self._answers[at] = answer
            self._open_count -= 1
            if self._open_count == 0:
                self._on_all(self._answers)

        return take
