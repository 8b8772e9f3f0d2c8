"""One workload of a run on real processes: creates its threads, its history and its folder."""

import time
from typing import TextIO

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, Recorder, event_line
from ottla.jepsen.processes.runs.run_load import RunLoad
from ottla.jepsen.processes.runs.run_nemeses import needs_store
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_watch import RunWatch
from ottla.jepsen.processes.store import RunDirectory
from ottla.jepsen.workloads.load import LoadPlan
from ottla.jepsen.workloads.table import WORKLOADS


class RunningWorkload:
    """One workload of a run on real processes: its threads, its history and its folder."""

    def __init__(self, name: str, plan: RunPlan, directory: RunDirectory) -> None:
        self.name = name
        self.directory = directory
        self.watch = RunWatch()
        self.counted = 0
        """Number of operations that had ended at the end of the load, before the final reads (of
        all records) began."""
        prefix = f"{name}-" if len(plan.workloads) > 1 else ""
        if plan.bootstrap is not None:
            # Names on a foreign cluster must not collide with those of others.
            prefix = f"jepsen-{name}-{directory.path.name.lower()}-"
        kinds = tuple(map(plan.client_of, range(plan.threads)))
        self.workload = WORKLOADS[name](
            LoadPlan(prefix=prefix, kinds=kinds, is_tiered=needs_store(plan.faults))
        )
        self._file: TextIO = directory.history.open("w")
        self._began_ns = 0
        self.recorder = Recorder(self.now_ns, concurrency=plan.threads, sink=self._take)
        self.load = RunLoad(self.workload, self.recorder, self.now_ns, plan.seed)

    async def set_up(self, bootstrap: str) -> None:
        """Create the topics that the workload needs on the cluster."""
        await self.workload.set_up(bootstrap)

    def start(self, began_ns: int) -> None:
        """Set the start time of the run, in nanoseconds of the machine's monotonic clock."""
        self._began_ns = began_ns

    @property
    def is_read(self) -> bool:
        """True if the workload's final reads (after the load) have reached the end of every log."""
        return self.load.is_read and self.workload.is_caught_up

    def now_ns(self) -> int:
        """Return the time in ns since the run began, by the monotonic clock."""
        return time.monotonic_ns() - self._began_ns

    def flush(self) -> None:
        """Write the recorded events to the workload's history file."""
        self._file.flush()

    def close(self) -> None:
        """Close the workload's history file."""
        self._file.close()

    def facts(self, plan: RunPlan) -> RunFacts:
        """Return the properties of the run that the checkers need in addition to the workload's
        history."""
        return RunFacts.from_json(
            {
                **self.workload.facts(),
                "workload": self.name,
                "clients": plan.clients,
                "nemeses": plan.faults,
                "seconds": plan.seconds,
            }
        )

    def _take(self, event: Event) -> None:
        self._file.write(event_line(event))
        if event.process >= 0:
            self.watch.take(event)
