"""Runs many seeds over several processes, adds up their counts, and keeps the failing runs.

A run depends on its seed alone, and not on the process or on earlier runs. So the sum of all trace
hashes is the same however the seeds are distributed.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing import get_context, parent_process
from threading import Thread
from types import FrameType

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import Engine, RunOutcome, make_engine, run_once
from ottla.jepsen.world.violation import Violation
from ottla.model.signal_handlers_driver import signal_handlers

RUN_SECONDS_MAX = 120
"""CPU time in seconds after which the run of one seed counts as hung. Without the limit, an endless
loop in the code under test would stop the whole search."""

LONG_RUN_SECONDS_MAX = {"tiered-day": 3_600}
"""CPU time limits, in seconds, of the subjects whose runs take longer by design."""

WALL_FACTOR_MAX = 20
"""Ratio of the wall-clock time limit of a run to its CPU time limit. It is large, because the
machine may be busy with other work."""

BATCH_SECONDS = 0.5
"""Intended duration in seconds of one batch of runs. A worker process sends one message per batch.
Shorter batches cost more messages; longer batches update the progress display less often."""

VIOLATIONS_KEPT_MAX = 20
"""Maximum number of failing runs whose outcomes a search keeps completely. Further failing runs are
only counted."""

_HASH_BITS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Parameters of a search for bugs: engine, subject, event budget and mutant. They are the same
    for every seed."""

    engine: str
    subject: str
    budget: int
    mutant: str | None = None
    """Name of the mutant (deliberate bug) that is active during the runs, or None if the code is
    unchanged."""


@dataclass(slots=True)
class RunTotals:
    """Sums of the counts of several runs with different seeds, and the failures of these runs."""

    run_count: int = 0
    event_count: int = 0
    sim_ms: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    rare: Counter[str] = field(default_factory=Counter)
    violation_count: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    """Number of runs that violated each invariant, by the invariant's name."""
    failures: list[RunOutcome] = field(default_factory=list)
    """Outcomes of the stored failing runs. The failing runs with the lowest seeds are stored."""
    hash_sum: int = 0
    only_hash: str = ""
    """Trace hash (hash of all events) of the run that was added last. If there is only one run, it
    is the hash of all."""
    busy_seconds: float = 0.0
    """Wall-clock time of the runs in seconds, summed over the worker processes."""
    cpu_seconds: float = 0.0
    """CPU time of the runs in seconds, summed over the worker processes. Other work on the machine
    does not count."""

    def take_in(self, outcome: RunOutcome) -> None:
        """Add the counts of one run to these sums."""
        self.run_count += 1
        self.only_hash = outcome.trace_hash
        self.event_count += outcome.event_count
        self.sim_ms += outcome.sim_ms
        self.figures.update(outcome.figures)
        self.rare.update(outcome.rare)
        self._add_hash(_number_of(outcome))
        if outcome.violation is not None:
            self.violation_count += 1
            self.broken[outcome.violation.invariant] += 1
            self._keep([outcome])

    def merge(self, other: "RunTotals") -> None:
        """Add the sums that another process computed to these sums."""
        self.run_count += other.run_count
        self.only_hash = other.only_hash
        self.event_count += other.event_count
        self.sim_ms += other.sim_ms
        self.figures.update(other.figures)
        self.rare.update(other.rare)
        self._add_hash(other.hash_sum)
        self.violation_count += other.violation_count
        self.broken.update(other.broken)
        self.busy_seconds += other.busy_seconds
        self.cpu_seconds += other.cpu_seconds
        self._keep(other.failures)

    @property
    def trace_hash(self) -> str:
        """Hash of all events of a single run, or one hash for several runs. The order of the runs
        does not change the hash."""
        return self.only_hash if self.run_count == 1 else f"{self.hash_sum:032x}"

    def missed(self, required: tuple[str, ...]) -> list[str]:
        """Return the subset of the rare states in `required` that no run has reached."""
        return [name for name in required if not self.rare.get(name)]

    def _add_hash(self, number: int) -> None:
        self.hash_sum = (self.hash_sum + number) % (1 << _HASH_BITS)

    def _keep(self, outcomes: list[RunOutcome]) -> None:
        kept = sorted([*self.failures, *outcomes], key=lambda outcome: outcome.seed)
        self.failures = kept[:VIOLATIONS_KEPT_MAX]


OnProgress = Callable[[RunTotals], None]


def run_seed(engine: Engine, seed: int, budget: int) -> RunOutcome:
    """Run the engine once with all random choices drawn from one seed, for at most `budget` events,
    and return the outcome."""
    return run_once(engine, Chance(seed), budget=budget)


def run_batch(job: Job, first_seed: int, count: int) -> RunTotals:
    """Run `count` consecutive seeds in this process, and return the sums of their counts."""
    engine = make_engine(job.engine, job.subject)
    totals = RunTotals()
    started, cpu_started = time.perf_counter(), time.process_time()
    with _mutated(job.mutant), bounded_runs(job.subject) as start_clock:
        for seed in range(first_seed, first_seed + count):
            start_clock()
            totals.take_in(run_seed(engine, seed, job.budget))
    totals.busy_seconds = time.perf_counter() - started
    totals.cpu_seconds = time.process_time() - cpu_started
    return totals


def run_many(
    job: Job,
    first_seed: int,
    *,
    count: int | None = None,
    seconds: float | None = None,
    cpu_seconds: float | None = None,
    processes: int = 1,
    ends_at_failure: bool = False,
    on_progress: OnProgress = lambda totals: None,
) -> RunTotals:
    """Run `count` seeds, beginning at `first_seed`, or as many as `seconds` of wall-clock time or
    `cpu_seconds` of all processes allow. Returns the sums of their counts. If `ends_at_failure` is
    True, the first violation ends the search."""
    assert (count, seconds, cpu_seconds) != (None, None, None)
    seed_batches = SeedBatches(first_seed, count, seconds, cpu_seconds)
    totals = RunTotals()

    def take_in(batch: RunTotals) -> bool:
        totals.merge(batch)
        seed_batches.learn(batch)
        on_progress(totals)
        return ends_at_failure and totals.violation_count > 0

    if processes == 1:
        while (share := seed_batches.next_share()) is not None:
            if take_in(run_batch(job, *share)):
                break
        return totals
    with open_pool(processes) as pool:
        waiting: set[Future[RunTotals]] = set()
        is_over = False
        while not is_over or waiting:
            while not is_over and len(waiting) < processes:
                share = seed_batches.next_share()
                if share is None:
                    is_over = True
                    break
                waiting.add(pool.submit(run_batch, job, *share))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                is_over |= take_in(future.result())
    return totals


def open_pool(processes: int) -> ProcessPoolExecutor:
    """Return a pool of worker processes that run batches of seeds. They end when the parent process
    closes the pool or ends."""
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin_process
    )


def _begin_process() -> None:
    """Initialise a worker process: ignore terminal signals, which the parent process handles, and
    end when the parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class SeedBatches:
    """Batches of consecutive seeds for worker processes. Each batch takes about BATCH_SECONDS to
    run."""

    def __init__(
        self,
        first_seed: int,
        count: int | None,
        seconds: float | None,
        cpu_seconds: float | None = None,
    ) -> None:
        self._next_seed = first_seed
        self._cpu_seconds_left = cpu_seconds
        self._end_seed = None if count is None else first_seed + count
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._share_count = 1

    def next_share(self) -> tuple[int, int] | None:
        """Return the first seed and the number of seeds of the next batch. Returns None if no seeds
        are left or the search's time is over."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return None
        if self._cpu_seconds_left is not None and self._cpu_seconds_left <= 0:
            return None
        count = self._share_count
        if self._end_seed is not None:
            count = min(count, self._end_seed - self._next_seed)
        if count <= 0:
            return None
        share = (self._next_seed, count)
        self._next_seed += count
        return share

    def learn(self, batch: RunTotals) -> None:
        """Adjust the size of the next batches of seeds to the duration of a finished batch, and
        count the CPU time of the finished batch."""
        if self._cpu_seconds_left is not None:
            self._cpu_seconds_left -= batch.cpu_seconds
        seconds_a_run = batch.busy_seconds / max(1, batch.run_count)
        fitting = int(BATCH_SECONDS / max(1e-6, seconds_a_run))
        self._share_count = max(1, min(fitting, 4 * self._share_count))


def _number_of(outcome: RunOutcome) -> int:
    """Return a hash over a run's seed and trace hash, as a number. The numbers of several runs can
    be added up in any order."""
    digest = blake2b(f"{outcome.seed}/{outcome.trace_hash}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big")


def _mutated(name: str | None) -> AbstractContextManager[None]:
    if name is None:
        return nullcontext()
    from ottla.jepsen.world.bugs import bank

    return bank.mutant(name).apply()


@contextmanager
def bounded_runs(subject: str) -> Iterator[Callable[[], None]]:
    """Yield a function that starts the time limit of one simulated run of a subject. A run that
    exceeds the limit ends with a violation."""
    seconds_max = LONG_RUN_SECONDS_MAX.get(subject, RUN_SECONDS_MAX)

    def end_run(signal_number: int, frame: FrameType | None) -> None:
        raise Violation("EveryRunEnds", f"a run computed for longer than {seconds_max} s")

    def start_clock() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds_max)
        signal.alarm(seconds_max * WALL_FACTOR_MAX)

    with signal_handlers(end_run, signal.SIGPROF, signal.SIGALRM):
        try:
            yield start_clock
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
