"""kill -9 of coordinators, leaders and clients at random: each record is copied once, in order.

`OTTLA_KILLS=60 pytest tests/cluster/exactly_once/test_copies_under_kills.py -s` runs longer, with
60 kills by each protocol.  `OTTLA_KILLS_SEED` draws the same victims again; the timing of the
machine still differs.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

IN_LONG = "OTTLA_KILLS" in os.environ
KILL_COUNT = int(os.environ.get("OTTLA_KILLS", "2"))
"""Kills with each protocol: with both together, each role is killed once."""
LEVELS = ((0,), (2,)) if IN_LONG else ((0, 2),)
"""Levels of transaction.version, one after the other in one cluster."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400 + 20 * KILL_COUNT)]


@pytest.mark.parametrize("levels", LEVELS)
def test_what_is_copied_in_transactions_is_there_once_and_in_order(
    start_copying: Callable[..., Any], levels: tuple[int, ...]
) -> None:
    copying = start_copying(levels[0])
    copying.wait_for_copies()
    killer = copying.killer()
    for level in levels:
        copying.set_transaction_version(level)
        for _ in range(KILL_COUNT):
            killer.kill()
    copying.cluster.wait_healthy()
    copying.check(copying.finish())
    assert sum(killer.kills.values()) == KILL_COUNT * len(levels)
