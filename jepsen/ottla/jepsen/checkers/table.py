"""Every checker by its name, and how a run is judged by some of them."""

from collections.abc import Iterable, Mapping

from ottla.jepsen.checkers.log import check_log
from ottla.jepsen.checkers.verdict import Checker, Facts, Verdict, combined
from ottla.jepsen.history import History, collection_paused

__all__ = ["CHECKERS", "combined", "judge"]

CHECKERS: Mapping[str, Checker] = {
    "log": check_log,
}


def judge(names: Iterable[str], history: History, facts: Facts) -> list[Verdict]:
    """Return the verdicts of these checkers, in the order named."""
    with collection_paused():
        return [CHECKERS[name](history, facts) for name in names]
