"""The gallery's table is complete."""

import inspect

import pytest

from tests.gallery.table import BUGS, Bug


def test_the_gallery_has_twenty_bugs_half_of_them_from_public_reports() -> None:
    assert len(BUGS) == len({bug.name for bug in BUGS}) == 20
    assert sum(bug.report is not None for bug in BUGS) >= 10


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_bug_has_a_fixed_twin_with_the_same_parameters(bug: Bug) -> None:
    assert inspect.iscoroutinefunction(bug.broken)
    assert inspect.iscoroutinefunction(bug.fixed)
    assert inspect.signature(bug.broken) == inspect.signature(bug.fixed)
