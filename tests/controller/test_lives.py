"""Whatever brokers do and suffer, and whenever controllers die, nothing acknowledged is lost.

Random lives of a cluster of three, as the deterministic world leads them, longer here than where
seeds are many.  A decision may be cut short after any record, as by a controller that dies between
two appends; the next one starts with full sessions.
"""

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.walk.controller_walk import ControllerWalk

DEED_COUNT = 400


@pytest.mark.parametrize("seed", range(40))
def test_nothing_acknowledged_is_lost_and_whoever_can_lead_does(seed: int) -> None:
    outcome = ControllerWalk().run(Chance(seed), budget=DEED_COUNT)

    assert outcome.violation is None
