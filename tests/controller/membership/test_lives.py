"""No acknowledged record is lost, in random lives of three brokers and their controller.

The schedules of the controller's walk, longer here than in its own test.
"""

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.walk.controller_walk import ControllerWalk
from tests.search_length import length

DEED_COUNT = 400


@pytest.mark.parametrize("seed", range(length(4, 10)))
def test_no_acknowledged_record_is_lost_and_every_partition_that_can_has_a_leader(
    seed: int,
) -> None:
    outcome = ControllerWalk().run(Chance(seed), budget=DEED_COUNT)

    assert outcome.violation is None
