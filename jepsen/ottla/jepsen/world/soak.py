"""Some time spent on every engine and subject, each to its stated share, and what came of it.

Who is furthest behind its share is dealt the next few seeds, so everybody has had its part wherever
the time ends.  A violation ends nothing: it is counted and kept as a file at once; the first of
each kind is then made small, within bounded time, while the others go on.
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
from ottla.jepsen.world.runner import Deal, Job, Tally, open_pool, run_batch

SHRUNK_MAX = 12
"""Failures that are made small; each costs one process half a minute at most."""

WAIT_SECONDS = 0.5
"""Between two looks at the clock and at whether to stop."""

STOP_SECONDS = 20.0
"""What is under way when the search is told to stop may take so long, and counts; no more does."""

POOLS_MAX = 20
"""Times that dead processes are replaced; whatever kills more of them is not a rare event."""

MakePool = Callable[[int], Executor]


class Part(NamedTuple):
    """How much of the time one subject gets."""

    engine: str
    subject: str
    percent: int


PLAN = (
    Part("walk", "raft", 7),
    Part("walk", "raft-forged", 3),
    Part("walk", "raft-disk", 8),
    Part("walk", "raft-damaged", 8),
    Part("walk", "replication", 8),
    Part("walk", "replication-losses", 4),
    Part("walk", "replication-forged", 2),
    Part("walk", "controller", 6),
    Part("walk", "log", 7),
    Part("walk", "log-failing", 3),
    Part("walk", "group", 6),
    Part("whole", "cluster", 8),
    Part("whole", "disks", 5),
    Part("whole", "damaged-quorum", 3),
    Part("whole", "names", 5),
    Part("whole", "losses", 3),
    Part("whole", "moves", 6),
    Part("whole", "compaction", 4),
    Part("whole", "compacted", 3),
    Part("whole", "encrypted", 3),
    Part("whole", "acls", 2),
    Part("whole", "throttled", 2),
    Part("whole", "transactions", 4),
    Part("whole", "transactions-coordinators", 2),
    Part("whole", "transactions-compacted", 2),
)
"""Most for what has broken most often."""


@dataclass(slots=True, kw_only=True)
class SubjectRow:
    """What one subject has had of the time, and what it did in it."""

    job: Job
    percent: int
    required: tuple[str, ...]
    deal: Deal
    tally: Tally = field(default_factory=Tally)
    under_way_count: int = 0
    """Runs dealt and not yet told of."""

    @property
    def debt(self) -> float:
        """Return seconds spent per percent; the lowest is furthest behind."""
        tally = self.tally
        seconds_a_run = tally.busy_seconds / tally.run_count if tally.run_count else 1.0
        return (tally.busy_seconds + self.under_way_count * seconds_a_run) / self.percent


class _Share(NamedTuple):
    """Seeds that a process runs just now."""

    row: SubjectRow
    first_seed: int
    run_count: int


class _Shrinking(NamedTuple):
    """A failure that a process makes small just now."""

    row: SubjectRow
    outcome: RunOutcome


@dataclass(slots=True, kw_only=True)
class KeptFailure:
    """A failure that has a file of its own."""

    engine: str
    subject: str
    seed: int
    invariant: str
    detail: str
    path: str
    is_small: bool = False


class Soak:
    """One search of everything; `run` does it, the rest tells how it stands."""

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
        """The first failure of each kind."""
        self.lost: list[str] = []
        """Seeds of which nothing is known."""
        self.is_stopped = False
        self._folder = folder
        self._make_pool = make_pool
        self._to_shrink: deque[_Shrinking] = deque()
        self._shrunk_count = 0
        self._running: dict[Future[Any], _Share | _Shrinking] = {}
        self._started = time.monotonic()
        self._ended: float | None = None

    @property
    def seconds(self) -> float:
        """Return how long it has been running, or ran."""
        return (self._ended or time.monotonic()) - self._started

    @property
    def violation_count(self) -> int:
        """Return how many runs broke something."""
        return sum(row.tally.violation_count for row in self.rows)

    def run(
        self,
        *,
        is_told_to_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[["Soak"], None] = lambda soak: None,
    ) -> None:
        """Search until time is over, or told to stop."""
        self._started = time.monotonic()
        for _ in range(POOLS_MAX):
            pool = self._make_pool(self.processes)
            try:
                self._search(pool, is_told_to_stop, on_progress)
                break
            except BrokenProcessPool:
                for task in self._running.values():
                    self._lose(task, "a process died, perhaps of another's seeds")
            finally:
                if self._running:  # told to stop, or some processes died
                    for child in active_children():
                        child.kill()
                pool.shutdown(cancel_futures=True)
                self._running.clear()
        self._ended = time.monotonic()

    def _search(
        self,
        pool: Executor,
        is_told_to_stop: Callable[[], bool],
        on_progress: Callable[["Soak"], None],
    ) -> None:
        stop_deadline: float | None = None
        while True:
            if stop_deadline is None and is_told_to_stop():
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
        except Exception as error:  # a batch that cannot tell what it did must not end all others
            self._lose(self._running.pop(future), repr(error))
            return
        task = self._running.pop(future)
        if isinstance(task, _Share):
            assert isinstance(result, Tally)
            self._take_in(task, result)
        else:
            assert isinstance(result, Case)
            self._keep(result, is_small=True)

    # --- dealing ------------------------------------------------------------------------------

    def _deal_out(self, pool: Executor) -> None:
        """Give every idle process something to do; at most one of them makes failures small."""
        is_shrinking = any(isinstance(task, _Shrinking) for task in self._running.values())
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
        """Return seeds for who is furthest behind; None when nobody has any left."""
        for row in sorted(self.rows, key=lambda row: row.debt):
            seeds = row.deal.next_share()
            if seeds is not None:
                return _Share(row, *seeds)
        return None

    # --- what came of it ----------------------------------------------------------------------

    def _take_in(self, share: _Share, batch: Tally) -> None:
        row = share.row
        row.under_way_count -= share.run_count
        row.tally.merge(batch)
        row.deal.learn(batch)
        for outcome in batch.failures:
            assert outcome.violation is not None
            if self._is_new(outcome):
                self._keep(case_of(row.job, outcome, trials_max=0), is_small=False)
                if self._shrunk_count < SHRUNK_MAX:
                    self._shrunk_count += 1
                    self._to_shrink.append(_Shrinking(row, outcome))

    def _is_new(self, outcome: RunOutcome) -> bool:
        assert outcome.violation is not None
        kind = (outcome.engine, outcome.subject, outcome.violation.invariant)
        return all((one.engine, one.subject, one.invariant) != kind for one in self.kept)

    def _keep(self, case: Case, *, is_small: bool) -> None:
        """Write a failure into its file; what is small takes the place of what was not."""
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

    def _lose(self, task: _Share | _Shrinking, why: str) -> None:
        """Note seeds of which nothing is known, but that something ended their process."""
        if isinstance(task, _Share):
            row, end_seed = task.row, task.first_seed + task.run_count
            row.under_way_count -= task.run_count
            self.lost.append(
                f"{row.job.engine} {row.job.subject}, seeds [{task.first_seed}, {end_seed}): {why}"
            )


def _row_of(part: Part, first_seed: int) -> SubjectRow:
    engine = make_engine(part.engine, part.subject)
    job = Job(engine=part.engine, subject=part.subject, budget=engine.budget)
    deal = Deal(first_seed, None, None)
    return SubjectRow(job=job, percent=part.percent, required=engine.required, deal=deal)
