"""The real clock and the real dice."""

from ottla.node.clock_driver import RealClock, RealRng


def test_monotonic_time_never_goes_back() -> None:
    clock = RealClock()
    instants = [clock.monotonic_ms() for _ in range(1000)]
    assert instants == sorted(instants)


def test_random_ids_are_version_4_and_never_printed_with_a_dash() -> None:
    rng = RealRng()
    ids = {rng.uuid() for _ in range(2000)}
    assert len(ids) == 2000
    assert {one.version for one in ids} == {4}
    assert all(one.bytes[0] >> 2 != 62 for one in ids)


def test_numbers_below_a_bound_reach_all_of_it() -> None:
    rng = RealRng()
    assert {rng.below(3) for _ in range(200)} == {0, 1, 2}
