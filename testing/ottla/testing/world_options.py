"""pytest options for tests in simulated worlds (`ottla.testing.world`).

They set environment variables, which strategies and runs read. So they also apply to the worker
processes of pytest-xdist. This module does not import the simulator, because it is loaded for every
test run that uses `ottla.testing`.
"""

import os

import pytest

VARIABLES = {"world_seed": "OTTLA_WORLD_SEED", "world_replay": "OTTLA_WORLD_REPLAY"}
"""Environment variable that each pytest option of this module sets, by the option's name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this module to pytest's command line."""
    group = parser.getgroup("ottla", "simulated worlds of Ottla")
    group.addoption(
        "--world-seed",
        metavar="N",
        type=int,
        help="draw clusters with this seed only",
    )
    group.addoption(
        "--world-replay",
        metavar="FILE",
        help="repeat the failing run in FILE, in the test that wrote it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Store the options' values in environment variables, which strategies and runs read."""
    for option, variable in VARIABLES.items():
        value = config.getoption(option)
        if value is not None:
            os.environ[variable] = (
                os.path.abspath(value) if option == "world_replay" else str(value)
            )
