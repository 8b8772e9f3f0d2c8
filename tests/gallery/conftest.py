"""Garbage collection of tests that run worlds, as in `tests/testing/world`."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """Freeze the modules and tests again, which each run of a world unfreezes at its end: the
    collections of all later tests would look at them."""
    yield
    gc.collect(1)
    gc.freeze()
