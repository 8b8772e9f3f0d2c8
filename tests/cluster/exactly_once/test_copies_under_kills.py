"""kill -9 of coordinators, leaders and clients at random: each record is copied once, in order.

`OTTLA_KILLS=60 pytest tests/cluster/exactly_once/test_copies_under_kills.py -s` goes on for longer,
with so many kills by each protocol.  `OTTLA_KILLS_SEED` draws the same victims again; what they do
meanwhile is up to the machine.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

IN_LONG = "OTTLA_KILLS" in os.environ
KILL_COUNT = int(os.environ.get("OTTLA_KILLS", "3"))
LEVELS = ((0,), (2,)) if IN_LONG else ((0, 2),)
"""Of transaction.version, one after the other in one cluster."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400 + 20 * KILL_COUNT)]

ROLES = ("transaction coordinator", "group coordinator", "partition leader", "client")
BACK_AT_ONCE = 0.25
"""How often a broker's successor in the bad luck need not wait until the cluster is whole again."""


class Killer:
    """Kills one process after the other, and starts each again; owns the dice."""

    def __init__(self, copying: Any, dice: random.Random) -> None:
        self.kills: Counter[str] = Counter()
        self._copying = copying
        self._cluster = copying.cluster
        self._dice = dice
        self._roles: list[str] = []

    def kill(self) -> None:
        """Kill somebody of one role, each role in its turn."""
        if not self._roles:
            self._roles = self._dice.sample(ROLES, len(ROLES))
        role = self._roles.pop()
        copier = self._dice.choice(self._copying.copiers)
        self._wait(1.0)
        self.kills[role] += 1
        print(f"kill -9 of the {role} of {copier.name}", flush=True)
        if role == "client":
            self._copying.kill_copier(copier)
            return
        victim = f"broker {self._cluster.wait_for(lambda: self._broker(role, copier), role)}"
        self._cluster.kill(victim)
        self._wait(1.0)
        self._cluster.start(victim)
        if self._dice.random() > BACK_AT_ONCE:
            self._cluster.wait_healthy()

    def _broker(self, role: str, copier: Any) -> int | None:
        copying = self._copying
        topic, partition = self._dice.choice(("source", copier.name)), self._dice.randrange(3)
        if role == "transaction coordinator":
            found = copying.transaction_coordinator(copier)
        elif role == "group coordinator":
            found = copying.group_coordinator(copier)
        else:
            found = copying.partition_leader(topic, partition)
        return found if found > 0 else None

    def _wait(self, longest_s: float) -> None:
        time.sleep(self._dice.uniform(0.0, longest_s))


@pytest.mark.parametrize("levels", LEVELS)
def test_what_is_copied_in_transactions_is_there_once_and_in_order(
    start_copying: Callable[..., Any], levels: tuple[int, ...]
) -> None:
    seed = int(os.environ.get("OTTLA_KILLS_SEED", random.randrange(1 << 32)))
    print(f"OTTLA_KILLS_SEED={seed}")
    copying = start_copying(levels[0])
    copying.wait_for_copies()
    killer = Killer(copying, random.Random(seed))
    for level in levels:
        copying.set_transaction_version(level)
        for _ in range(KILL_COUNT):
            killer.kill()
    copying.cluster.wait_healthy()
    copying.check(copying.finish())
    assert sum(killer.kills.values()) == KILL_COUNT * len(levels)
