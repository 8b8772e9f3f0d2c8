"""A soak: a long search for bugs with every engine and subject, each for a fixed share of the time.

The subject that is furthest behind its share gets the next few seeds. The shares are therefore
correct at any time at which the search may end. A violation does not end the search: it is counted
and saved as a file at once. The first violation of each kind is then shrunk, within bounded time,
while the search continues.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import active_children
from pathlib import Path
from typing import Any, NamedTuple

from ottla.jepsen.world.corpus import Case, save
from ottla.jepsen.world.engine import RunOutcome, make_engine
from ottla.jepsen.world.report import case_of
from ottla.jepsen.world.runner import Job, RunTotals, SeedBatches, open_pool, run_batch

SHRUNK_MAX = 12
"""Maximum number of failing runs that one soak (long search) reduces. Each reduction occupies one
process for up to 30 s."""

WAIT_SECONDS = 0.5
"""Interval in seconds at which a soak checks whether its time is over or a stop was requested."""

STOP_SECONDS = 20.0
"""Time limit in seconds within which running batches of seeds must finish after a request to stop.
Their results still count."""

POOLS_MAX = 20
"""Maximum number of times that a soak (long search) replaces dead worker processes. If they die
more often, the soak ends with an error."""

MakePool = Callable[[int], Executor]


class Part(NamedTuple):
    """One subject of a search engine, and the percentage of a soak's time that it gets."""

    engine: str
    subject: str
    percent: int


PLAN = (
    Part("walk", "raft", 6),
    Part("walk", "raft-forged", 3),
    Part("walk", "raft-disk", 7),
    Part("walk", "raft-damaged", 8),
    Part("walk", "replication", 8),
    Part("walk", "replication-losses", 4),
    Part("walk", "replication-forged", 2),
    Part("walk", "controller", 6),
    Part("walk", "log", 5),
    Part("walk", "log-failing", 3),
    Part("walk", "log-sequences", 2),
    Part("walk", "group", 6),
    Part("whole", "cluster", 8),
    Part("whole", "disks", 5),
    Part("whole", "damaged-quorum", 3),
    Part("whole", "names", 5),
    Part("whole", "losses", 3),
    Part("whole", "moves", 5),
    Part("whole", "compaction", 4),
    Part("whole", "compacted", 3),
    Part("whole", "encrypted", 3),
    Part("whole", "acls", 1),
    Part("whole", "controller-clients", 1),
    Part("whole", "throttled", 2),
    Part("whole", "shares", 1),
    Part("whole", "ordered-shares", 1),
    Part("whole", "share-leaders", 1),
    Part("whole", "transactions", 3),
    Part("whole", "transactions-clients", 1),
    Part("whole", "transactions-coordinators", 2),
    Part("whole", "transactions-compacted", 2),
)
"""The subjects that a soak (long search) tests, each with its share of the time in percent.
Subjects that have had the most violations so far have the largest shares."""


@dataclass(slots=True, kw_only=True)
class SubjectRow:
    """Time that a soak (long search) has used for one subject, and the results of that subject's
    runs."""

    job: Job
    percent: int
    required: tuple[str, ...]
    seed_batches: SeedBatches
    totals: RunTotals = field(default_factory=RunTotals)
    under_way_count: int = 0
    """Number of the subject's runs that were submitted to worker processes and have no result
    yet."""

    @property
    def debt(self) -> float:
        """Seconds that the soak has used for the subject per percent of its share, including an
        estimate for the runs in progress. The subject with the lowest value is furthest behind."""
        totals = self.totals
        seconds_a_run = totals.busy_seconds / totals.run_count if totals.run_count else 1.0
        return (totals.busy_seconds + self.under_way_count * seconds_a_run) / self.percent


class _Share(NamedTuple):
    """A batch of consecutive seeds of one subject that a worker process is running now."""

    row: SubjectRow
    first_seed: int
    run_count: int


class _ShrinkTask(NamedTuple):
    """A failing run that a worker process is shrinking now."""

    row: SubjectRow
    outcome: RunOutcome


@dataclass(slots=True, kw_only=True)
class KeptFailure:
    """A failing run that a soak (long search) saved in a file."""

    engine: str
    subject: str
    seed: int
    invariant: str
    detail: str
    path: str
    is_small: bool = False


class Soak:
    """One long search for bugs with every engine and subject. `run` performs the search; the other
    methods report its progress."""

    def __init__(
        self,
        *,
        seconds: float,
        folder: Path,
        first_seed: int = 0,
        processes: int = 1,
        plan: Sequence[Part] = PLAN,
        make_pool: MakePool = open_pool,
    ) -> None:
        self.seconds_max = seconds
        self.first_seed = first_seed
        self.processes = processes
        self.rows = [_row_of(part, first_seed) for part in plan]
        self.kept: list[KeptFailure] = []
        """The first failing run of each kind of violation, saved as a file."""
        self.lost: list[str] = []
        """Descriptions of the seeds whose results were lost, because the worker process that ran
        them died."""
        self.is_stopped = False
        self._folder = folder
        self._make_pool = make_pool
        self._to_shrink: deque[_ShrinkTask] = deque()
        self._shrunk_count = 0
        self._running: dict[Future[Any], _Share | _ShrinkTask] = {}
        self._started = time.monotonic()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """Duration of the soak so far, in seconds."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def violation_count(self) -> int:
        """Number of the soak's runs with a violation."""
        return sum(row.totals.violation_count for row in self.rows)

    def run(
        self,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[["Soak"], None] = lambda soak: None,
    ) -> None:
        """Run seeds of every subject until the soak's time is over or `should_stop` returns
        True."""
        self._started = time.monotonic()
        for _ in range(POOLS_MAX):
            pool = self._make_pool(self.processes)
            try:
                self._search(pool, should_stop, on_progress)
                break
            except BrokenProcessPool:
                for task in self._running.values():
                    self._lose(task, "a process died, perhaps of another's seeds")
            finally:
                if self._running:  # a stop was requested, or some processes died
                    for child in active_children():
                        child.kill()
                pool.shutdown(cancel_futures=True)
                self._running.clear()
        self._ended = time.monotonic()

    def _search(
        self,
        pool: Executor,
        should_stop: Callable[[], bool],
        on_progress: Callable[["Soak"], None],
    ) -> None:
        stop_deadline: float | None = None
        while True:
            if stop_deadline is None and should_stop():
                self.is_stopped = True
                stop_deadline = time.monotonic() + STOP_SECONDS
                self._to_shrink.clear()
            if stop_deadline is None:
                self._deal_out(pool)
            elif time.monotonic() >= stop_deadline:
                return
            if not self._running:
                return
            done, _ = wait(self._running, WAIT_SECONDS, FIRST_COMPLETED)
            for future in done:
                self._end(future)
            on_progress(self)

    def _end(self, future: Future[Any]) -> None:
        try:
            result = future.result()
        except BrokenProcessPool:
            raise
        except Exception as error:  # one failed batch must not end the others
            self._lose(self._running.pop(future), repr(error))
            return
        task = self._running.pop(future)
        if isinstance(task, _Share):
            assert isinstance(result, RunTotals)
            self._take_in(task, result)
        else:
            assert isinstance(result, Case)
            self._keep(result, is_small=True)

    # --- dealing ------------------------------------------------------------------------------

    def _deal_out(self, pool: Executor) -> None:
        """Submit work to every idle process of the pool. At most one process shrinks failing runs
        at a time."""
        is_shrinking = any(isinstance(task, _ShrinkTask) for task in self._running.values())
        if self._to_shrink and not is_shrinking and len(self._running) < self.processes:
            task = self._to_shrink.popleft()
            self._running[pool.submit(case_of, task.row.job, task.outcome)] = task
        while len(self._running) < self.processes and self.seconds < self.seconds_max:
            share = self._next_share()
            if share is None:
                return
            future = pool.submit(run_batch, share.row.job, share.first_seed, share.run_count)
            share.row.under_way_count += share.run_count
            self._running[future] = share

    def _next_share(self) -> _Share | None:
        """Return the next seeds to run for the subject that is furthest behind its share of the
        time. Returns None if no subject has seeds left."""
        for row in sorted(self.rows, key=lambda row: row.debt):
            seeds = row.seed_batches.next_share()
            if seeds is not None:
                return _Share(row, *seeds)
        return None

    # --- results ------------------------------------------------------------------------------

    def _take_in(self, share: _Share, batch: RunTotals) -> None:
        row = share.row
        row.under_way_count -= share.run_count
        row.totals.merge(batch)
        row.seed_batches.learn(batch)
        for outcome in batch.failures:
            assert outcome.violation is not None
            if self._is_new(outcome):
                self._keep(case_of(row.job, outcome, trials_max=0), is_small=False)
                if self._shrunk_count < SHRUNK_MAX:
                    self._shrunk_count += 1
                    self._to_shrink.append(_ShrinkTask(row, outcome))

    def _is_new(self, outcome: RunOutcome) -> bool:
        assert outcome.violation is not None
        kind = (outcome.engine, outcome.subject, outcome.violation.invariant)
        return all((one.engine, one.subject, one.invariant) != kind for one in self.kept)

    def _keep(self, case: Case, *, is_small: bool) -> None:
        """Write the case of a failing run to its file. A shrunk case replaces the original.
        `is_small` is True if the case was shrunk."""
        found = KeptFailure(
            engine=case.engine,
            subject=case.subject,
            seed=case.seed,
            invariant=case.invariant,
            detail=case.what,
            path=str(save(case, self._folder)),
            is_small=is_small,
        )
        self.kept = [*(one for one in self.kept if one.path != found.path), found]

    def _lose(self, task: _Share | _ShrinkTask, why: str) -> None:
        """Record that the results of a worker process's seeds are unknown, because it died for the
        reason `why`."""
        if isinstance(task, _Share):
            row, end_seed = task.row, task.first_seed + task.run_count
            row.under_way_count -= task.run_count
            self.lost.append(
                f"{row.job.engine} {row.job.subject}, seeds [{task.first_seed}, {end_seed}): {why}"
            )


def _row_of(part: Part, first_seed: int) -> SubjectRow:
    engine = make_engine(part.engine, part.subject)
    job = Job(engine=part.engine, subject=part.subject, budget=engine.budget)
    seed_batches = SeedBatches(first_seed, None, None)
    return SubjectRow(
        job=job, percent=part.percent, required=engine.required, seed_batches=seed_batches
    )
