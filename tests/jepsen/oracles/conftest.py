"""The oracles that measure collections of garbage give up what was left out of them."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def what_outlives_a_module_stays_out_of_collections() -> Iterator[None]:
    """Leave out again what `tests/conftest.py` left out, for the tests that follow."""
    yield
    gc.collect()
    gc.freeze()
