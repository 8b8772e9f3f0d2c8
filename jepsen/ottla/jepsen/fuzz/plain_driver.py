"""Fuzzing by mutation alone, in pure Python. Every test run includes a short run of it.

The inputs depend only on the seed and the count. A time limit can only end the run earlier.
"""

import time
from collections.abc import Iterable
from random import Random

from ottla.jepsen.fuzz.judge import Judge
from ottla.jepsen.fuzz.mutate import mutated
from ottla.jepsen.fuzz.target import FuzzTarget

SECONDS_UNBOUNDED = float("inf")


def fuzz(
    target: FuzzTarget,
    *,
    seed: int = 0,
    count: int | None = None,
    seconds: float = SECONDS_UNBOUNDED,
    kept: Iterable[bytes] = (),
) -> Judge:
    """Run a fuzz target on all valid and stored inputs, then on mutated inputs, up to `count`
    inputs or `seconds` seconds. Returns the judge, which contains the inputs that the target
    handled incorrectly."""
    random = Random(f"{target.name} {seed}")
    judge = Judge(target)
    ends_at = time.monotonic() + seconds
    inputs = [*target.seeds(random), *kept]
    for data in inputs:
        if judge.input_count == count or time.monotonic() >= ends_at:
            return judge
        judge.take(data, is_measured=False)
    while judge.input_count != count and time.monotonic() < ends_at:
        data = random.choice(inputs)
        judge.take(mutated(random, data, inputs, target.input_bytes_max))
    return judge
