"""Reduces a failing run: fewer decisions, and smaller ones (delta debugging, ddmin).

The reduced run need not fail at the same place, but it must fail in the same way. The caller
defines which failures are the same.
"""

from collections.abc import Callable, Sequence

StillFails = Callable[[Sequence[int]], bool]
HasTime = Callable[[], bool]

TRIALS_MAX = 4_000
"""Maximum number of runs that the reduction of one failing run may use. After them, or when the
time is over, the result is the smallest failing run so far."""


class _TrialsExhausted(Exception):  # noqa: N818 - an event, not a fault
    """Raised when the reduction of a failing run has used all its runs or all its time."""


class _Trials:
    """Runs of candidate lists of decisions (recorded random choices). Counts the runs, and stores
    the smallest failing list so far."""

    def __init__(
        self, decisions: Sequence[int], still_fails: StillFails, trials_max: int, has_time: HasTime
    ) -> None:
        self.best = list(decisions)
        self._still_fails = still_fails
        self._left = trials_max
        self._has_time = has_time

    def accept(self, candidate: list[int]) -> bool:
        """Run the candidate list of decisions, and keep it if it is smaller than the smallest
        failing list and fails as well. Returns whether it was kept."""
        if self._left <= 0 or not self._has_time():
            raise _TrialsExhausted
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
    """Return a shorter list of decisions (recorded random choices) whose run still fails. After a
    complete reduction, none of the parts that were tried can be removed from it.

    Ends early after `trials_max` runs, or when `has_time` returns False.
    """
    trials = _Trials(decisions, still_fails, trials_max, has_time)
    try:
        _cut_end(trials)
        before: list[int] | None = None
        while before != trials.best:
            before = trials.best
            _cut_parts(trials)
            _quieten(trials)
            _cut_end(trials)
    except _TrialsExhausted:
        pass
    return trials.best


def _cut_end(trials: _Trials) -> None:
    """Find the shortest prefix of the decisions whose run still fails, by bisection."""
    low, high = 0, len(trials.best)
    while low < high:
        middle = (low + high) // 2
        if trials.accept(trials.best[:middle]):
            high = middle
        else:
            low = middle + 1


def _cut_parts(trials: _Trials) -> None:
    """Remove sequences of consecutive decisions, the longest first, while the run with the
    remaining decisions still fails."""
    length = max(1, len(trials.best) // 2)
    while length >= 1:
        at = 0
        while at < len(trials.best):
            if not trials.accept(trials.best[:at] + trials.best[at + length :]):
                at += length
        length //= 2


def _quieten(trials: _Trials) -> None:
    """Replace each decision (recorded random choice) by 0, or by half its value if the run no
    longer fails with 0."""
    for at in range(len(trials.best)):
        value = trials.best[at]
        for smaller in (0, value // 2):
            if smaller < value:
                candidate = list(trials.best)
                candidate[at] = smaller
                if trials.accept(candidate):
                    break
