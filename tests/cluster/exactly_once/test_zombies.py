"""A copier that resumes after another has taken its transactional id changes nothing."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FENCED = 3
LEVELS = (0, 2) if "OTTLA_KILLS" in os.environ else (2,)
COPIED_MEANWHILE = 30
END_S = 120.0


@pytest.mark.parametrize("level", LEVELS)
def test_a_paused_copier_that_wakes_after_its_successor_began_changes_nothing(
    start_copying: Callable[..., Any], level: int
) -> None:
    copying = start_copying(level, controllers=1, brokers=1)
    copying.wait_for_copies()
    paused = {copier.name: copying.replace_copier(copier) for copier in copying.copiers}
    copying.wait_for_copies(COPIED_MEANWHILE)
    for child in paused.values():
        child.send_signal(signal.SIGCONT)
    codes = {name: child.wait(END_S) for name, child in paused.items()}
    print(f"ended with {codes}")
    # Who first looks at the group sees that this went on, and ends before a coordinator is asked.
    assert all(codes.values()), codes
    assert FENCED in codes.values(), codes
    copying.check(copying.finish())
