"""Soak: a long search for failures of tests of programs, distributed over processes.

Each process runs batches of examples of one test, each with a separate seed. The test with the
least time so far gets the next batch. Failures are stored in a folder, the corpus: one file for
each kind of failure of each test, with the plan and the faults of the smallest run. A later soak
runs the corpus first.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from json import JSONDecodeError, loads
from multiprocessing import active_children
from pathlib import Path
from typing import Any

from ottla.jepsen.world.runner import open_pool
from ottla.model.errors import CorruptDataError
from ottla.testing.world.errors import WorldError
from ottla.testing.world.soak.soak_worker import (
    SoakFailure,
    SoakResult,
    run_again,
    run_batch,
    save_case,
)

BATCH_S = 20.0
"""Intended duration of a batch in seconds. It is long compared with the start of pytest, and short
enough for a quick stop."""
FIRST_EXAMPLES = 5
EXAMPLES_MAX = 2_000
WAIT_S = 0.5
STOP_S = 30.0
"""Seconds that running batches may take to finish after a stop was requested."""
SHRUNK_MAX = 3
"""Number of failing batches of one test that are shrunk. Later failures of known kinds are counted
only."""
POOLS_MAX = 20
"""Maximum number of times that dead worker processes are replaced."""


@dataclass(slots=True)
class SoakRow:
    """Results of one test in a soak."""

    test: str
    run_count: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    example_count: int = 0
    failure_count: int = 0
    """Number of batches of runs of this test in which a run failed."""
    problem: str = ""
    """Reason why the test cannot run. It gets no further batches of runs. Empty if it can run."""
    next_examples: int = FIRST_EXAMPLES
    batch_count: int = 0
    """Number of batches that have begun. Even the shortest soak begins one for each test."""
    batches_running: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    """Path of the failure file for each kind of failure. Empty if a failure has no file."""

    @property
    def virtual_hours(self) -> float:
        """Virtual time, in hours, that all simulated clusters of the test ran."""
        return self.virtual_s / 3_600


class ProgramSoak:
    """One soak of tests. `run` performs it; the attributes report its progress."""

    def __init__(
        self,
        tests: Sequence[str],
        *,
        seconds: float,
        corpus: Path,
        first_seed: int = 0,
        processes: int = 1,
        make_pool: Callable[[int], Executor] = open_pool,
    ) -> None:
        if not tests:
            raise WorldError("a soak needs at least one test, as FILE::TEST")
        self.seconds_max = seconds
        self.processes = processes
        self.first_seed = first_seed
        self.next_seed = first_seed
        """Seed of the next batch. Batches with the seeds from `first_seed` to the one before this
        have run or are running."""
        self.rows = {test: SoakRow(test) for test in tests}
        self.still_failing: list[str] = []
        """Files of the corpus (saved failing runs) that still fail."""
        self.fixed: list[str] = []
        """Files of the corpus (saved failing runs) that no longer fail."""
        self.lost: list[str] = []
        """Batches of runs whose results were lost, because their worker process died."""
        self.is_stopped = False
        self._corpus = corpus
        self._make_pool = make_pool
        self._replays = _stored_cases(corpus, tests)
        self._running: dict[Future[SoakResult], tuple[str, int, int] | tuple[str, str]] = {}
        self._started = time.monotonic()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """Duration of the soak so far, in seconds."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def has_failed(self) -> bool:
        """True if a test failed or could not run, or if results were lost."""
        return bool(self.still_failing or self.lost) or any(
            row.failure_count or row.problem for row in self.rows.values()
        )

    def run(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[["ProgramSoak"], None] = lambda soak: None,
    ) -> None:
        """Run the corpus, then batches of all tests, until the time is over or `should_stop`
        returns True."""
        self._started = time.monotonic()
        self._corpus.mkdir(parents=True, exist_ok=True)
        for _ in range(POOLS_MAX):
            pool = self._make_pool(self.processes)
            try:
                self._search(pool, should_stop, on_progress)
                break
            except BrokenProcessPool:
                self.lost += [f"{task}: a process died" for task in self._running.values()]
            finally:
                if self._running:
                    for child in active_children():
                        child.kill()
                pool.shutdown(cancel_futures=True)
                self._running.clear()
                for row in self.rows.values():
                    row.batches_running = 0
        self._ended = time.monotonic()

    def facts(self) -> dict[str, Any]:
        """Return the results of the soak as JSON values."""
        rows = list(self.rows.values())
        virtual_hours = sum(row.virtual_hours for row in rows)
        return {
            "seconds": round(self.seconds, 1),
            "processes": self.processes,
            "seeds": [self.first_seed, self.next_seed],
            "virtual_hours": round(virtual_hours, 2),
            "virtual_hours_per_hour": round(virtual_hours / max(self.seconds, 1e-9) * 3_600, 1),
            "is_stopped_early": self.is_stopped,
            "tests": [
                {
                    "test": row.test,
                    "runs": row.run_count,
                    "virtual_hours": round(row.virtual_hours, 2),
                    "cpu_s": round(row.cpu_s, 1),
                    "failures": row.failure_count,
                    "files": sorted(path for path in row.kinds.values() if path),
                    "kinds": sorted(row.kinds),
                    "problem": row.problem,
                }
                for row in rows
            ],
            "still_failing": self.still_failing,
            "fixed": self.fixed,
            "lost": self.lost,
        }

    def _search(
        self,
        pool: Executor,
        should_stop: Callable[[], bool],
        on_progress: Callable[["ProgramSoak"], None],
    ) -> None:
        stop_deadline: float | None = None
        while True:
            if stop_deadline is None and should_stop():
                self.is_stopped = True
                stop_deadline = time.monotonic() + STOP_S
            if stop_deadline is None:
                self._deal_out(pool)
            elif time.monotonic() >= stop_deadline:
                return
            if not self._running:
                return
            done, _ = wait(self._running, WAIT_S, FIRST_COMPLETED)
            for future in done:
                self._take_in(future)
            on_progress(self)

    def _deal_out(self, pool: Executor) -> None:
        while len(self._running) < self.processes:
            if self._replays:
                test, path = self._replays.pop()
                self._running[pool.submit(run_again, test, path)] = (test, path)
                continue
            is_over = self.seconds >= self.seconds_max
            ready = [
                row
                for row in self.rows.values()
                if not row.problem and not (is_over and row.batch_count)
            ]
            if not ready:
                return
            row = min(ready, key=lambda one: one.wall_s + one.batches_running * BATCH_S)
            seed, self.next_seed = self.next_seed, self.next_seed + 1
            row.batch_count += 1
            row.batches_running += 1
            shrinks = row.failure_count < SHRUNK_MAX
            count = row.next_examples
            future = pool.submit(run_batch, row.test, seed, count, shrinks=shrinks)
            self._running[future] = (row.test, seed, count)

    def _take_in(self, future: Future[SoakResult]) -> None:
        try:
            result = future.result()
        except BrokenProcessPool:
            raise
        except Exception as error:  # one failed batch must not end the others
            task = self._running.pop(future)
            self.rows[task[0]].batches_running = 0
            self.lost.append(f"{task}: {error!r}")
            return
        task = self._running.pop(future)
        row = self.rows[task[0]]
        row.run_count += result.run_count
        row.virtual_s += result.virtual_s
        row.cpu_s += result.cpu_s
        row.wall_s += result.wall_s
        if len(task) == 2:
            if result.problem:
                self.lost.append(f"{task[1]}: {result.problem}")
                return
            (self.still_failing if result.failures else self.fixed).append(task[1])
            return
        row.batches_running -= 1
        row.example_count += task[2]
        row.problem = row.problem or result.problem
        if result.failures:
            row.failure_count += 1
        elif result.wall_s > 0:
            ideal = task[2] * BATCH_S / result.wall_s
            row.next_examples = int(min(max(ideal, 1), row.next_examples * 4, EXAMPLES_MAX))
        for failure in result.failures:
            self._keep(row, failure)

    def _keep(self, row: SoakRow, failure: SoakFailure) -> None:
        if failure.kind not in row.kinds:
            path = save_case(failure, self._corpus)
            row.kinds[failure.kind] = "" if path is None else str(path)


def _stored_cases(corpus: Path, tests: Sequence[str]) -> list[tuple[str, str]]:
    """Return test and path of each stored failure of these tests, sorted by descending file name.
    Raises CorruptDataError if a file is damaged."""
    found = []
    for path in sorted(corpus.glob("*.json"), reverse=True):
        try:
            name = loads(path.read_bytes())["test"]
        except (JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise CorruptDataError(f"{path} is no stored failure ({error!r}); delete it") from error
        found += [(test, str(path)) for test in tests if _includes(test, str(name))][:1]
    return found


def _includes(test: str, name: str) -> bool:
    """Return whether the name of a test, class or file in `test` includes the test with the node id
    `name`."""
    return name == test or name.startswith((f"{test}::", f"{test}["))
