"""Reports of the fault runs about missing, duplicate or reordered records."""

import pytest

from ottla.bench.spark.spark_faults import is_clean
from ottla.bench.spark.spark_faults_driver import SourceRow, compare

SOURCE = [SourceRow(n % 2, n, b"k" if n % 3 else None, b"%d text" % n) for n in range(12)]

OTHERS = {"acknowledged_missing": 0, "copy_read_whole_doubled_or_else": 0}


def copied(rows: list[SourceRow]) -> list[SourceRow]:
    return [row._replace(partition=0, offset=10 + at) for at, row in enumerate(rows)]


def verdict(archive: list[SourceRow], copy: list[SourceRow]) -> dict[str, int]:
    return {**compare(SOURCE, archive, copy), **OTHERS}


def test_a_faithful_archive_and_copy_are_clean() -> None:
    found = verdict(SOURCE[::-1], copied(SOURCE)[::-1])

    assert is_clean(found)
    assert found["source_records"] == found["copy_records_committed"] == 12


@pytest.mark.parametrize(
    ("archive", "copy", "counts"),
    [
        (SOURCE[1:], SOURCE, {"archive_missing": 1}),
        (SOURCE + SOURCE[:2], SOURCE, {"archive_doubled_or_else": 2}),
        (SOURCE, SOURCE[:-1], {"copy_missing": 1}),
        (SOURCE, SOURCE + SOURCE[:1], {"copy_doubled_or_else": 1}),
        (SOURCE, [*SOURCE[:1], SOURCE[2], SOURCE[1], *SOURCE[3:]], {"copy_out_of_order": 1}),
    ],
)
def test_what_is_wrong_is_counted(
    archive: list[SourceRow], copy: list[SourceRow], counts: dict[str, int]
) -> None:
    found = verdict(archive, copied(copy))

    assert not is_clean(found)
    assert {name: found[name] for name in counts} == counts
