"""The benchmark of exports runs, and counts every record."""

from ottla.bench.exports import FORMS, compare
from ottla.testing import cluster


def test_every_form_is_measured() -> None:
    with cluster() as running:
        lines = compare(running.bootstrap, count=200, rounds=1)
    assert [line.split()[0] for line in lines] == list(FORMS)
    assert all(" 200 rows: " in line for line in lines)
