"""The authorizer benchmark makes the decisions that its names announce."""

from ottla.bench.authorizer import WAYS, run_decisions


def test_every_way_to_decide_is_measured() -> None:
    done: list[int] = []

    figures = run_decisions(count=60, rounds=1, progress=done.append)

    assert done == list(range(1, WAYS + 1))
    assert figures["entries"] == 60
    assert all(
        isinstance(value, float) and value > 0
        for name, value in figures.items()
        if name.endswith("_us")
    )
