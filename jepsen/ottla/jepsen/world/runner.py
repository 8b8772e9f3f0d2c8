"""Runs many seeds over processes, adds up what they did, and keeps what failed.

A seed's run depends on the seed alone; which process ran it, and after which others, must not show.
The sum of all trace hashes is the same however the seeds were dealt out.
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

RUN_SECONDS_MAX = 120
"""A run that computes for longer hangs; a core that loops would stop the whole search."""

WALL_FACTOR_MAX = 20
"""How many times as long a run may take by the clock: the machine may be busy with others."""

BATCH_SECONDS = 0.5
"""Work handed to a process at once: shorter costs messages, longer makes the progress jerky."""

VIOLATIONS_KEPT_MAX = 20
"""Failing runs kept whole; the rest are counted."""

_HASH_BITS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is run for every seed."""

    engine: str
    subject: str
    budget: int
    mutant: str | None = None
    """A mutant of the bug bank that is switched on meanwhile."""


@dataclass(slots=True)
class Tally:
    """What a number of runs did."""

    run_count: int = 0
    event_count: int = 0
    sim_ms: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    rare: Counter[str] = field(default_factory=Counter)
    violation_count: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    """Violations by what was broken."""
    failures: list[RunOutcome] = field(default_factory=list)
    """The first failing runs, by seed."""
    hash_sum: int = 0
    only_hash: str = ""
    """The trace's hash of the run that was taken in last."""
    busy_seconds: float = 0.0
    """Summed over the processes."""
    cpu_seconds: float = 0.0
    """What the processes computed of them; other work on the machine does not count."""

    def take_in(self, outcome: RunOutcome) -> None:
        """Add one run."""
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

    def merge(self, other: "Tally") -> None:
        """Add what another process did."""
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
        """Return the one run's hash, or one for all of them in whatever order they were made."""
        return self.only_hash if self.run_count == 1 else f"{self.hash_sum:032x}"

    def missed(self, required: tuple[str, ...]) -> list[str]:
        """Return the rare states that were never reached."""
        return [name for name in required if not self.rare.get(name)]

    def _add_hash(self, number: int) -> None:
        self.hash_sum = (self.hash_sum + number) % (1 << _HASH_BITS)

    def _keep(self, outcomes: list[RunOutcome]) -> None:
        kept = sorted([*self.failures, *outcomes], key=lambda outcome: outcome.seed)
        self.failures = kept[:VIOLATIONS_KEPT_MAX]


OnProgress = Callable[[Tally], None]


def run_seed(engine: Engine, seed: int, budget: int) -> RunOutcome:
    """Run one seed."""
    return run_once(engine, Chance(seed), budget=budget)


def run_batch(job: Job, first_seed: int, count: int) -> Tally:
    """Run some seeds in a row, in this process."""
    engine = make_engine(job.engine, job.subject)
    tally = Tally()
    started, cpu_started = time.perf_counter(), time.process_time()
    with _mutated(job.mutant), bounded_runs() as start_clock:
        for seed in range(first_seed, first_seed + count):
            start_clock()
            tally.take_in(run_seed(engine, seed, job.budget))
    tally.busy_seconds = time.perf_counter() - started
    tally.cpu_seconds = time.process_time() - cpu_started
    return tally


def run_many(
    job: Job,
    first_seed: int,
    *,
    count: int | None = None,
    seconds: float | None = None,
    processes: int = 1,
    ends_at_failure: bool = False,
    on_progress: OnProgress = lambda tally: None,
) -> Tally:
    """Run `count` seeds from `first_seed` on, or as many as `seconds` allow."""
    assert count is not None or seconds is not None
    deal = Deal(first_seed, count, seconds)
    tally = Tally()

    def take_in(batch: Tally) -> bool:
        tally.merge(batch)
        deal.learn(batch)
        on_progress(tally)
        return ends_at_failure and tally.violation_count > 0

    if processes == 1:
        while (share := deal.next_share()) is not None:
            if take_in(run_batch(job, *share)):
                break
        return tally
    with open_pool(processes) as pool:
        waiting: set[Future[Tally]] = set()
        is_over = False
        while not is_over or waiting:
            while not is_over and len(waiting) < processes:
                share = deal.next_share()
                if share is None:
                    is_over = True
                    break
                waiting.add(pool.submit(run_batch, job, *share))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                is_over |= take_in(future.result())
    return tally


def open_pool(processes: int) -> ProcessPoolExecutor:
    """Return processes to run batches in; when to end is their parent's to say."""
    return ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_begin_process
    )


def _begin_process() -> None:
    """Leave signals that reach all of a terminal's processes to the parent; end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class Deal:
    """Deals out seeds in shares of about BATCH_SECONDS each."""

    def __init__(self, first_seed: int, count: int | None, seconds: float | None) -> None:
        self._next_seed = first_seed
        self._end_seed = None if count is None else first_seed + count
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._share_count = 1

    def next_share(self) -> tuple[int, int] | None:
        """Return the first seed and the number of seeds of the next share; None: enough."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return None
        count = self._share_count
        if self._end_seed is not None:
            count = min(count, self._end_seed - self._next_seed)
        if count <= 0:
            return None
        share = (self._next_seed, count)
        self._next_seed += count
        return share

    def learn(self, batch: Tally) -> None:
        """Choose the next shares' size from how long a finished one took."""
        seconds_a_run = batch.busy_seconds / max(1, batch.run_count)
        fitting = int(BATCH_SECONDS / max(1e-6, seconds_a_run))
        self._share_count = max(1, min(fitting, 4 * self._share_count))


def _number_of(outcome: RunOutcome) -> int:
    """Return a run's seed and trace as one number that may be summed."""
    digest = blake2b(f"{outcome.seed}/{outcome.trace_hash}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big")


def _mutated(name: str | None) -> AbstractContextManager[None]:
    if name is None:
        return nullcontext()
    from ottla.jepsen.world.bugs import bank

    return bank.mutant(name).apply()


@contextmanager
def bounded_runs() -> Iterator[Callable[[], None]]:
    """Yield what starts a run's clock; a run that hangs ends with a violation."""

    def strike(signal_number: int, frame: FrameType | None) -> None:
        raise Violation("EveryRunEnds", f"a run computed for longer than {RUN_SECONDS_MAX} s")

    def start_clock() -> None:
        signal.setitimer(signal.ITIMER_PROF, RUN_SECONDS_MAX)
        signal.alarm(RUN_SECONDS_MAX * WALL_FACTOR_MAX)

    numbers = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, strike) for number in numbers]
    try:
        yield start_clock
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
