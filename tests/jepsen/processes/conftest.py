"""Abilities of this machine for the harness, detected once; tests that lack one are skipped."""

from collections.abc import Callable

import pytest
import trio

from ottla.jepsen.processes.abilities import Abilities, Ability, probe


@pytest.fixture(scope="session")
def abilities(tmp_path_factory: pytest.TempPathFactory) -> Abilities:
    """All that the machine lets us do."""
    return trio.run(probe, tmp_path_factory.mktemp("probe"))


@pytest.fixture
def need(abilities: Abilities) -> Callable[..., None]:
    """Skip the test unless the machine has the abilities; the reason says why it has not."""

    def check(*wanted: Ability) -> None:
        for one in wanted:
            if one not in abilities:
                pytest.skip(f"this machine has no {one}: {abilities.missing[one]}")

    return check
