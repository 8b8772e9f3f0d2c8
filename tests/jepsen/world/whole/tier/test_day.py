"""A tiered topic writes for hours while its object store has faults, without a full disk."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import make_engine
from tests.jepsen.search_length import length

VIRTUAL_MS = length(600_000, 86_400_000)


def test_no_send_fails_and_no_disk_is_full(explored: Any) -> None:
    outcome = make_engine("whole", "tiered-day").run(Chance(1), budget=VIRTUAL_MS)
    explored("C tiered-day", outcome)
    assert outcome.violation is None
    assert outcome.figures["acknowledged"] >= VIRTUAL_MS // 60_000 - 1
