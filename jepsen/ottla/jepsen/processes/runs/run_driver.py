"""Performs one run, from the start of its cluster to the collection of its logs. The verdict
follows later.

The phases of a run, each with a time limit:

- set-up: the cluster is started, and topics are created;
- load: clients send load while faults happen;
- heal: all faults are healed, and load continues until the cluster is healthy;
- final reads: clients read all records;
- collect: logs and data of the nodes are collected.

An interrupt ends the load. The cluster is then healed and stopped, and the histories recorded so
far are stored and checked.
"""

import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import trio

from ottla.jepsen.checkers.verdict import DirectoryCheck
from ottla.jepsen.history import Json
from ottla.jepsen.processes.abilities import NOTHING
from ottla.jepsen.processes.cluster import ProcessCluster, open_cluster
from ottla.jepsen.processes.commands import CommandError
from ottla.jepsen.processes.nemeses.nemesis import Nemesis
from ottla.jepsen.processes.nodes import NodeError
from ottla.jepsen.processes.runs.run_evidence import check_directories, errors_in
from ottla.jepsen.processes.runs.run_faults import FaultInjector
from ottla.jepsen.processes.runs.run_nemeses import (
    check_names,
    make_nemeses,
    needs_store,
    say_abilities,
)
from ottla.jepsen.processes.runs.run_plan import RunPlan
from ottla.jepsen.processes.runs.run_status import RunPhase, Say, Show, Status
from ottla.jepsen.processes.runs.run_track import RunningWorkload
from ottla.jepsen.processes.runs.run_verdict import RunSummary
from ottla.jepsen.processes.store import FAULTS_FILE, TEST_FILE, RunDirectory, Store, share
from ottla.model.errors import OttlaError, only_error

SET_UP_TIMEOUT_S = 60.0
HEALTHY_TIMEOUT_S = 60.0
SETTLE_S = 2.0
"""Seconds for which a run's load continues after the cluster is healthy again, to show that the
cluster accepts every kind of operation."""
STOP_TIMEOUT_S = 45.0
FINAL_TIMEOUT_S = 150.0
"""Time limit in seconds of a run's final reads (of all records). Workloads end their final reads by
themselves after 120 s."""
COLLECT_TIMEOUT_S = 90.0
PROGRESS_S = 0.5
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "8",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""Settings of the cluster under test. With Kafka's defaults, a crashed member of the newer protocol
keeps its partitions for 45 s, longer than a run waits for a recovery. Fifty offsets partitions,
each failing over with its broker, are too much work for a small machine."""


class HarnessError(OttlaError):
    """Raised if the test harness failed before or during the run, so that there is no result."""


async def run(plan: RunPlan, store: Store, *, show: Show, say: Say) -> list[RunDirectory]:
    """Perform the run of a plan. Returns the folders of its workloads, whose histories can then be
    checked. `show` displays the progress, and `say` prints a message.

    Raises OttlaError if no run took place. Possible reasons are an unknown name in the plan, a
    bootstrap address that does not answer, and a cluster that did not start.
    """
    check_names(plan)
    directories = store.new([plan.test_of(name) for name in plan.workloads])
    pairs = zip(plan.workloads, directories, strict=True)
    tracks = [RunningWorkload(name, plan, directory) for name, directory in pairs]
    one = RunDriver(plan, tracks, show, say)
    try:
        one.write()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.watch_signals, nursery.cancel_scope)
            nursery.start_soon(one.watch_progress)
            with tempfile.TemporaryDirectory(
                prefix="ottla-jepsen-", ignore_cleanup_errors=True
            ) as scratch:
                await one.go(Path(scratch))
            nursery.cancel_scope.cancel()
    except BaseException as error:
        reported = _reported_error(only_error(error))
        if reported is error:
            raise
        raise reported from error
    finally:
        # Write the known results, whatever ended the run.
        one.write()
        for track in tracks:
            track.close()
    return directories


def _reported_error(error: BaseException) -> BaseException:
    """Return the exception to raise in place of an error of the run: a HarnessError with a message
    of one sentence if the cause is known, otherwise the error itself."""
    if isinstance(error, NodeError | CommandError):
        return HarnessError(str(error))
    if isinstance(error, trio.TooSlowError):
        return HarnessError(f"the cluster was not ready for load within {SET_UP_TIMEOUT_S:g} s")
    return error


class RunDriver:
    """One run of a plan, from its start to the collected files. `summary` records its outcome."""

    def __init__(
        self, plan: RunPlan, tracks: Sequence[RunningWorkload], show: Show, say: Say
    ) -> None:
        self.plan = plan
        self.tracks = tracks
        self.summary = RunSummary()
        self._show = show
        self._say = say
        self._status = Status()
        self._server_errors: tuple[tuple[str, str], ...] = ()
        self._directory_checks: tuple[DirectoryCheck, ...] = ()
        self._faults: FaultInjector | None = None
        self._started = datetime.now(UTC)
        self._entered_at = trio.current_time()
        self._hurting = trio.CancelScope()

    async def go(self, scratch: Path) -> None:
        """Do all phases of the run, from the set-up to the collected files. Writes the results into
        `summary` and into the run's folders. Temporary files are in `scratch`."""
        self._enter(RunPhase.SET_UP)
        async with self._target(scratch) as (bootstrap, cluster):
            with trio.fail_after(SET_UP_TIMEOUT_S):
                await self._each(lambda track: track.set_up(bootstrap))
            facts = self.tracks[0].facts(self.plan)
            nemeses = make_nemeses(self.plan, cluster, facts, self.summary, self._say)
            began_ns = time.monotonic_ns()
            for track in self.tracks:
                track.start(began_ns)
            async with trio.open_nursery() as nursery:
                for track in self.tracks:
                    nursery.start_soon(track.load.run, bootstrap, self.plan.threads)
                await self._inject_faults(nemeses)
                await self._heal(cluster)
                with trio.move_on_after(STOP_TIMEOUT_S):
                    await self._each(lambda track: track.load.stop())
                self._enter(RunPhase.FINAL)
                nursery.cancel_scope.deadline = trio.current_time() + FINAL_TIMEOUT_S
                for track in self.tracks:
                    track.load.read()
                if self.summary.is_interrupted:
                    nursery.cancel_scope.cancel()
            self._enter(RunPhase.COLLECT)
            await self._collect(bootstrap, cluster)

    async def watch_signals(self, all_: trio.CancelScope) -> None:
        """Wait for interrupt signals. The first one ends the run's load, and the second one ends
        everything except the clean-up."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if self.summary.is_interrupted:
                    all_.cancel()
                    return
                self.summary.is_interrupted = True
                self._say(
                    "interrupted: healing and cleaning up; a second interrupt ends the run at once"
                )
                self._hurting.cancel()

    async def watch_progress(self) -> None:
        """Show the progress of the run twice a second, and write recorded events to the history
        files."""
        while True:
            before, at = self._operation_count(), trio.current_time()
            await trio.sleep(PROGRESS_S)
            status, count, now = self._status, self._operation_count(), trio.current_time()
            status.phase_s = now - self._entered_at
            status.operation_count = count
            status.ops_per_s = (count - before) / (now - at)
            status.anomalies = sum((track.watch.anomalies for track in self.tracks), Counter())
            if self._faults is not None:
                status.fault = self._faults.now
                status.fault_count = self._faults.injected.total()
            self._show(status)
            for track in self.tracks:
                track.flush()

    def write(self) -> None:
        """Write the results that are known so far into the folder of each workload."""
        plan = self.plan
        for track in self.tracks:
            facts = replace(
                track.facts(plan),
                server_errors=self._server_errors,
                directory_checks=self._directory_checks,
            )
            content = {
                "test": plan.test_of(track.name),
                "workload": track.name,
                "nemesis": list(plan.nemeses),
                "clients": list(plan.clients),
                "seconds": plan.seconds,
                "started": self._started.isoformat(timespec="seconds"),
                "concurrency": plan.threads,
                "command": plan.command(),
                "planted": plan.planted,
                "secure": plan.secure,
                "bootstrap": plan.bootstrap,
                "skipped": self.summary.skipped,
                "checkers": list(track.workload.checkers),
                "plan": plan.to_json(),
                "course": self._summary_of(track).to_json(),
                "facts": facts.to_json(),
            }
            track.directory.write(TEST_FILE, content)
            track.directory.write(FAULTS_FILE, self._faults.rows if self._faults else [])

    def _summary_of(self, track: RunningWorkload) -> RunSummary:
        return replace(
            self.summary,
            own_operation_count=track.counted,
            broken_clients=dict(track.load.broken),
            is_read=track.is_read,
        )

    # ---- phases

    @asynccontextmanager
    async def _target(self, scratch: Path) -> AsyncIterator[tuple[str, ProcessCluster | None]]:
        """Open the target of the run's load: a new cluster, or a connection to an existing one.
        Yields its bootstrap address and the new cluster. The cluster is None if the run did not
        start it."""
        plan = self.plan
        if plan.bootstrap is not None:
            self._say("an existing cluster: load and checks only, no faults")
            yield plan.bootstrap, None
            return
        opening = open_cluster(
            scratch,
            controllers=plan.controllers,
            brokers=plan.brokers,
            settings=SETTINGS,
            planted=plan.planted,
            flush=plan.flush,
            secure=plan.secure,
            has_store=needs_store(plan.faults),
            abilities=NOTHING if plan.plain else None,
        )
        async with opening as cluster:
            say_abilities(cluster, self._say)
            if plan.secure:
                self._say("secure: TLS and certificates of nodes, SCRAM over TLS, ACLs")
            yield cluster.bootstrap, cluster

    async def _inject_faults(self, nemeses: Sequence[Nemesis]) -> None:
        """Run the load and the faults of `nemeses` for the planned time. All faults are healed at
        the end."""
        self._enter(RunPhase.LOAD, self.plan.seconds)
        began = trio.current_time()
        rng = Random(f"{self.plan.seed}/faults")
        self._faults = FaultInjector(nemeses, rng, self.plan.interval_s, self._note)
        with self._hurting:
            await self._faults.run(self.plan.seconds)
        self.summary.seconds = trio.current_time() - began
        for track in self.tracks:
            track.counted = track.watch.operation_count
        self.summary.operation_count = self._operation_count()
        self.summary.faults = dict(self._faults.injected)
        self.summary.fault_errors = self._faults.errors

    async def _heal(self, cluster: ProcessCluster | None) -> None:
        """Continue the run's load until the cluster is healthy, and for SETTLE_S seconds more.
        `cluster` is None for an existing cluster, which the run did not start."""
        self._enter(RunPhase.HEAL)
        try:
            if cluster is not None:
                await cluster.wait_healthy(HEALTHY_TIMEOUT_S)
        except NodeError as error:
            self.summary.unhealthy = str(error)
        if not self.summary.is_interrupted:
            await trio.sleep(SETTLE_S)

    async def _collect(self, bootstrap: str, cluster: ProcessCluster | None) -> None:
        """Collect the nodes' files. On an existing cluster (`cluster` is None), delete the topics
        and groups of the load instead."""
        with trio.move_on_after(COLLECT_TIMEOUT_S) as scope:
            if cluster is None:
                await self._each(lambda track: track.workload.tear_down(bootstrap))
                return
            self.summary.died = [
                f"{death.node} ended with code {death.code}"
                for death in cluster.deaths
                if not death.was_expected
            ]
            self.summary.died += await cluster.stop_all()
            first, *others = (track.directory.nodes for track in self.tracks)
            cluster.collect_logs(first)
            share(first, others)
            self._server_errors = errors_in(first)
            data = {node.name: node.disk.data for node in cluster.brokers}
            self._directory_checks = await trio.to_thread.run_sync(check_directories, data)
        if scope.cancelled_caught:
            self._say(f"collecting took longer than {COLLECT_TIMEOUT_S:g} s and was cancelled")

    # ---- parts

    async def _each(self, ask: Callable[[RunningWorkload], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for track in self.tracks:
                nursery.start_soon(ask, track)

    def _enter(self, phase: RunPhase, seconds: float = 0.0) -> None:
        self._status.phase = phase
        self._status.phase_s_max = seconds
        self._entered_at = trio.current_time()
        # Each phase is shown once, even without a progress display.
        self._show(self._status)

    def _note(self, fault: str, value: Json) -> None:
        for track in self.tracks:
            track.recorder.nemesis(fault, value)

    def _operation_count(self) -> int:
        return sum(track.watch.operation_count for track in self.tracks)
