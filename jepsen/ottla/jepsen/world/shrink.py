"""Makes a failing run small: fewer decisions, and smaller ones (delta debugging, ddmin).

The run need not fail in the same place, only in the same way: the caller says what counts.
"""

from collections.abc import Callable, Sequence

StillFails = Callable[[Sequence[int]], bool]
HasTime = Callable[[], bool]

TRIALS_MAX = 4_000
"""Runs that one shrinking may take; beyond them, or when there is no time left, the smallest found
so far is what there is."""


class _Spent(Exception):  # noqa: N818 - an event, not a fault
    """No more trials."""


class _Trials:
    """Counts the runs and keeps the smallest failing list."""

    def __init__(
        self, decisions: Sequence[int], still_fails: StillFails, trials_max: int, has_time: HasTime
    ) -> None:
        self.best = list(decisions)
        self._still_fails = still_fails
        self._left = trials_max
        self._has_time = has_time

    def accept(self, candidate: list[int]) -> bool:
        """Take a smaller list if it fails too."""
        if self._left <= 0 or not self._has_time():
            raise _Spent
        self._left -= 1
        if not self._still_fails(candidate):
            return False
        self.best = candidate
        return True


def shrink(
    decisions: Sequence[int],
    still_fails: StillFails,
    *,
    trials_max: int = TRIALS_MAX,
    has_time: HasTime = lambda: True,
) -> list[int]:
    """Return a list that still fails, from which no tried part can be taken."""
    trials = _Trials(decisions, still_fails, trials_max, has_time)
    try:
        _cut_end(trials)
        before: list[int] | None = None
        while before != trials.best:
            before = trials.best
            _cut_parts(trials)
            _quieten(trials)
            _cut_end(trials)
    except _Spent:
        pass
    return trials.best


def _cut_end(trials: _Trials) -> None:
    """Find by halving how short a beginning still fails."""
    low, high = 0, len(trials.best)
    while low < high:
        middle = (low + high) // 2
        if trials.accept(trials.best[:middle]):
            high = middle
        else:
            low = middle + 1


def _cut_parts(trials: _Trials) -> None:
    """Take out runs of decisions, long ones first."""
    length = max(1, len(trials.best) // 2)
    while length >= 1:
        at = 0
        while at < len(trials.best):
            if not trials.accept(trials.best[:at] + trials.best[at + length :]):
                at += length
        length //= 2


def _quieten(trials: _Trials) -> None:
    """Make each decision the quiet one, else half of what it was."""
    for at in range(len(trials.best)):
        value = trials.best[at]
        for smaller in (0, value // 2):
            if smaller < value:
                candidate = list(trials.best)
                candidate[at] = smaller
                if trials.accept(candidate):
                    break
