"""Search for the bugs of the gallery, as a user's property test would do it.

`python -m tests.gallery.hunt [--fixed] [--seeds N] [--examples N] [--no-shrinking] [NAME ...]`
prints one line for each search. `--cpu-seconds N` searches each fixed twin with further seeds until
N seconds are used, also after a failure. Times are CPU time of this process in seconds.
"""

import argparse
import time
from contextlib import suppress
from dataclasses import dataclass, field

import hypothesis
from hypothesis import Phase

import ottla.testing.world as world
from tests.gallery.scenarios import Program
from tests.gallery.table import BUGS, Bug

EXAMPLE_COUNT = 100
"""Number of runs of a search: Hypothesis' default."""

TWIN_EXAMPLE_COUNT = 20
"""Number of runs of a fixed twin with one seed."""
TWIN_SEED = 1_000
"""First seed of the searches of fixed twins."""


@dataclass
class Search:
    """Result of a search."""

    run_count: int = 0
    """Number of runs until the first failure, or of all runs if none failed."""
    found_s: float | None = None
    """CPU time until the first failure, or None if no run failed."""
    total_s: float = 0.0
    """CPU time of the search with shrinking."""
    plan: world.ClusterPlan = field(default_factory=world.ClusterPlan)
    """Cluster of the last failing run: that of the simplest failure."""
    faults: world.FaultSchedule = field(default_factory=world.FaultSchedule)
    """Faults of the last failing run."""
    failure: world.CheckFailedError | None = None
    """Failure of the last failing run."""


def run_once(
    bug: Bug, program: Program, plan: world.ClusterPlan, faults: world.FaultSchedule
) -> None:
    """Run the scenario of a bug once. Raises CheckFailedError if the check fails."""

    async def scenario(w: world.World) -> None:
        await bug.scenario(w, program)

    world.run(scenario, plan, faults)


def search(
    bug: Bug,
    program: Program,
    seed: int,
    *,
    example_count: int = EXAMPLE_COUNT,
    is_shrunk: bool = True,
) -> Search:
    """Search for faults at which a program fails, with the default faults of the world."""
    found = Search()
    began = time.process_time()
    phases = (Phase.generate, Phase.shrink) if is_shrunk else (Phase.generate,)

    @hypothesis.seed(seed)
    @world.settings(
        max_examples=example_count, database=None, report_multiple_bugs=False, phases=phases
    )
    @hypothesis.given(world.faults(), world.cluster())
    def property_test(faults: world.FaultSchedule, plan: world.ClusterPlan) -> None:
        if found.failure is None:
            found.run_count += 1
        try:
            run_once(bug, program, plan, faults)
        except world.CheckFailedError as failure:
            if found.found_s is None:
                found.found_s = time.process_time() - began
            found.plan, found.faults, found.failure = plan, faults, failure
            raise

    with suppress(world.CheckFailedError):
        property_test()
    found.total_s = time.process_time() - began
    return found


@dataclass
class TwinSearch:
    """Result of the searches of one fixed twin."""

    run_count: int = 0
    cpu_s: float = 0.0
    failures: list[Search] = field(default_factory=list)


def search_twin(bug: Bug, cpu_s: float) -> TwinSearch:
    """Search for failures of a fixed twin with one seed after another, until a CPU time is used.
    The search continues after a failure."""
    twin = TwinSearch()
    seed = TWIN_SEED
    while twin.cpu_s < cpu_s:
        found = search(bug, bug.fixed, seed, example_count=TWIN_EXAMPLE_COUNT, is_shrunk=False)
        twin.run_count += found.run_count
        twin.cpu_s += found.total_s
        if found.failure is not None:
            twin.failures.append(found)
        seed += 1
    return twin


def described(bug: Bug, seed: int, found: Search) -> str:
    """Return the line of a search."""
    if found.failure is None:
        return f"{bug.name} seed {seed}: not found in {found.run_count} runs, {found.total_s:.1f} s"
    faults = "; ".join(str(found.faults).splitlines())
    return (
        f"{bug.name} seed {seed}: {found.failure.check} after {found.run_count} runs and "
        f"{found.found_s:.1f} s; {len(found.faults.faults)} faults after {found.total_s:.1f} s: "
        f"{faults}"
    )


def main() -> None:
    """Run searches as the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--examples", type=int, default=EXAMPLE_COUNT)
    parser.add_argument("--no-shrinking", action="store_true")
    parser.add_argument("--cpu-seconds", type=float)
    options = parser.parse_args()
    for bug in BUGS:
        if options.names and bug.name not in options.names:
            continue
        if options.cpu_seconds is not None:
            twin = search_twin(bug, options.cpu_seconds)
            counts = f"{twin.run_count} runs, {len(twin.failures)} failed, {twin.cpu_s:.0f} s"
            print(f"{bug.name} fixed: {counts}", flush=True)
            for found in twin.failures:
                print(found.plan, found.faults, found.failure, sep="\n", flush=True)
            continue
        for seed in range(options.seeds):
            program = bug.fixed if options.fixed else bug.broken
            found = search(
                bug,
                program,
                seed,
                example_count=options.examples,
                is_shrunk=not options.no_shrinking,
            )
            print(described(bug, seed, found), flush=True)
            if options.fixed and found.failure is not None:
                print(found.plan, found.failure, *found.failure.__notes__, sep="\n", flush=True)


if __name__ == "__main__":
    main()
