"""Table of the checkers by name, and a function that runs some of them on a history. The module
does no I/O."""

from collections.abc import Iterable, Mapping

from ottla.jepsen.checkers.availability import check_availability
from ottla.jepsen.checkers.cycles import check_cycles
from ottla.jepsen.checkers.groups import check_groups
from ottla.jepsen.checkers.list_offsets import check_list_offsets
from ottla.jepsen.checkers.log import check_log
from ottla.jepsen.checkers.metadata import check_metadata
from ottla.jepsen.checkers.offsets import check_offsets
from ottla.jepsen.checkers.producer_ids import check_producer_ids
from ottla.jepsen.checkers.servers import check_servers
from ottla.jepsen.checkers.share_order import check_share_order
from ottla.jepsen.checkers.shares import check_shares
from ottla.jepsen.checkers.transactions import check_transactions
from ottla.jepsen.checkers.verdict import Checker, RunFacts, Verdict, combined
from ottla.jepsen.history import History
from ottla.model.garbage import collection_paused

__all__ = ["CHECKERS", "combined", "judge"]

CHECKERS: Mapping[str, Checker] = {
    "log": check_log,
    "cycles": check_cycles,
    "offsets": check_offsets,
    "groups": check_groups,
    "metadata": check_metadata,
    "producer-ids": check_producer_ids,
    "transactions": check_transactions,
    "list-offsets": check_list_offsets,
    "shares": check_shares,
    "share-order": check_share_order,
    "availability": check_availability,
    "servers": check_servers,
}


def judge(names: Iterable[str], history: History, facts: RunFacts) -> list[Verdict]:
    """Run the named checkers on a history. Returns their verdicts in the order of the names."""
    with collection_paused():
        return [CHECKERS[name](history, facts) for name in names]
