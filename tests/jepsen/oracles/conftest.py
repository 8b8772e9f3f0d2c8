"""The garbage collections left out of measurements are done after each oracle."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def what_outlives_a_module_stays_out_of_collections() -> Iterator[None]:
    """Freeze long-lived objects again for the tests that follow, as `tests/conftest.py` does."""
    yield
    gc.collect()
    gc.freeze()
