"""The longest pause between acknowledged changes of metadata."""

from ottla.bench.faults.metadata_pause import MetadataPause


def test_the_longest_time_between_two_changes_is_the_pause() -> None:
    found = MetadataPause()
    assert found.longest_s == 0
    found.acknowledged_s = [1.0, 1.25, 3.25, 3.5]
    assert found.longest_s == 2.0
