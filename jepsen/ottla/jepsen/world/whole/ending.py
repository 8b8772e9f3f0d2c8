"""Final phase of a run: all faults are healed, and the cluster must recover within bounded time.

Invariants:

- EverybodyServes, InSyncSetsFillUp, ProgressAfterHealing, GroupCatchesUp;
- EverythingEnds: no transaction stays open;
- MetadataAgrees: every broker has the same image;
- SettingsInForce: the logs of every broker use the settings in its image;
- ReplicasAlike: all replicas of a partition begin and end at the same offsets;
- LogsAgree: committed records are the same bytes on every replica;
- LogsHaveTheirFiles: the files of a log are in the directory of its name;
- the invariants of `history.py`, checked by a last read of all records.
"""

from collections.abc import Awaitable, Callable

import trio

from ottla.client.network.connection import ConnectionLostError
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.jepsen.checkers.compacted import differing_key, is_compacted
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import METADATA_DIRECTORY, SimulatedCluster
from ottla.jepsen.world.whole.faults.topic_recreations import (
    TopicRecreations,
    replicas_that_differ,
    settings_not_in_force,
)
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.workload import ClientWorkload
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition

HEALING_S_MAX = 60.0
"""Virtual time in seconds within which all nodes of a healed cluster must serve, with full ISRs."""

PROGRESS_S_MAX = 30.0
GROUP_S_MAX = 60.0
ENDS_S_MAX = 30.0
"""Virtual time in seconds within which all transactions must end after all faults: longer than a
transaction timeout plus a request timeout."""

SETTLING_S_MAX = 10.0
"""Virtual time in seconds within which a broker must have applied its newest metadata image."""

LOOK_S = 0.25
LOOKS_AT_FILES_MAX = 40
"""Maximum number of times that the check reads a log's files, if they change meanwhile. A cleaner
that has fallen behind replaces one segment after the other."""

METADATA_LOG = "__cluster_metadata-0"
Replica = tuple[Machine, str]
"""Machine and log directory of a partition's replica."""

LAST_DELTA = slice(23, 27)
"""Position in a record batch of the field lastOffsetDelta: the offset of the last record, relative
to the base offset."""

BATCH_OVERHEAD = 12
"""Number of bytes of a record batch that its length field does not count: base offset and the
length itself."""


class EndJudge:
    """Checks at the end of a simulated run: the cluster recovers, no acknowledged record is lost,
    and all replicas agree."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        workload: ClientWorkload,
        history: ClientHistory,
        recreations: TopicRecreations,
    ) -> None:
        self._cluster = cluster
        self._workload = workload
        self._history = history
        self._recreations = recreations

    async def judge(self) -> None:
        """Wait until the cluster has recovered, then compare the data of all replicas. Raises
        Violation if a check fails."""
        await self._until("EverybodyServes", self._cluster.unready, HEALING_S_MAX)
        await self._until("InSyncSetsFillUp", self._cluster.out_of_sync, HEALING_S_MAX)
        self._workload.is_quiet = True
        await self._settle_producers()
        await self._attempt(
            "ProgressAfterHealing", lambda: self._workload.probe(PROGRESS_S_MAX), PROGRESS_S_MAX + 5
        )
        await self._settle_clients()
        ends: dict[TopicPartition, int] = {}

        async def find_ends() -> None:
            ends.update(await self._workload.end_offsets())

        await self._attempt("ProgressAfterHealing", find_ends, PROGRESS_S_MAX)
        await self._attempt(
            "ProgressAfterHealing", lambda: self._workload.read_all(ends), PROGRESS_S_MAX
        )
        await self._attempt("ProgressAfterHealing", self._recreations.judge, PROGRESS_S_MAX)
        if self._workload.members:
            await self._wait_for_group(ends)
        await self._stop_clients()
        await self._until("MetadataAgrees", self._disagreement, HEALING_S_MAX)
        await self._until("InSyncSetsFillUp", self._cluster.out_of_sync, HEALING_S_MAX)
        await self._until(
            "SettingsInForce", lambda: settings_not_in_force(self._cluster), SETTLING_S_MAX
        )
        await self._until(
            "ReplicasAlike", lambda: replicas_that_differ(self._cluster), SETTLING_S_MAX
        )
        await trio.sleep(2.0)
        await self._compare_logs()
        await self._look_for_files()

    async def _settle_producers(self) -> None:
        """Wait until every record that a producer sent is acknowledged or has finally failed."""
        await trio.sleep(1.0)

    async def _settle_clients(self) -> None:
        """Wait until no open transaction blocks consumers that read committed records."""
        unsettled: list[str] = []

        async def look() -> None:
            unsettled[:] = await self._workload.unsettled()

        with trio.move_on_after(ENDS_S_MAX):
            while True:
                await self._attempt("EverythingEnds", look, PROGRESS_S_MAX)
                if not unsettled:
                    return
                await trio.sleep(LOOK_S)
        raise Violation("EverythingEnds", f"not {ENDS_S_MAX:g} s after the end: {unsettled}")

    async def _wait_for_group(self, ends: dict[TopicPartition, int]) -> None:
        behind: dict[TopicPartition, int] = {}

        async def look() -> None:
            nonlocal behind
            committed = await self._workload.committed_offsets()
            behind = {at: ends[at] - committed[at] for at in ends if committed[at] < ends[at]}

        with trio.move_on_after(GROUP_S_MAX):
            while True:
                await self._attempt("GroupCatchesUp", look, PROGRESS_S_MAX)
                if not behind:
                    break
                await trio.sleep(LOOK_S)
        if behind:
            raise Violation("GroupCatchesUp", f"{GROUP_S_MAX:g} s after the end it lacks {behind}")
        for at in ends:
            self._history.check_group(self._workload.group, at)

    async def _stop_clients(self) -> None:
        async with trio.open_nursery() as nursery:
            for machine in self._workload.machines:
                if machine.is_running:
                    machine.kill()
                    nursery.start_soon(machine.has_ended.wait)

    def _disagreement(self) -> list[str]:
        images = {
            node: broker.member.image for node, broker in sorted(self._cluster.brokers.items())
        }
        first = min(images)
        return [
            f"broker {node} has another image than broker {first}"
            for node, image in images.items()
            if image != images[first]
        ]

    async def _compare_logs(self) -> None:
        replicas: dict[str, list[Replica]] = {}
        for machine in self._cluster.broker_machines.values():
            for directory in self._cluster.log_directories:
                for name in await machine.disk.listdir(directory):
                    is_partition = not name.startswith(".") and name.rpartition("-")[2].isdigit()
                    if is_partition and "delete" not in name and name != METADATA_LOG:
                        replicas.setdefault(name, []).append((machine, f"{directory}/{name}"))
        for name, holders in sorted(replicas.items()):
            await _compare(name, holders)
        path = f"{METADATA_DIRECTORY}/{METADATA_LOG}"
        await _compare(
            METADATA_LOG,
            [(machine, path) for machine in self._cluster.controller_machines.values()],
        )

    async def _look_for_files(self) -> None:
        """Check that the files of every log reach its end offset. Without its files, a log could
        serve requests only until its process ends."""
        for node, broker in sorted(self._cluster.brokers.items()):
            for at, log in broker.logs:
                end_offset = log.end_offset
                found = await batches_of(self._cluster.broker_machines[node], log.directory)
                lies_to: int = log.local_start_offset
                if found:
                    base_offset, last = max(found.items())
                    lies_to = base_offset + int.from_bytes(last[LAST_DELTA], "big") + 1
                if log.failure is None and lies_to < end_offset:
                    raise Violation(
                        "LogsHaveTheirFiles",
                        f"broker {node}: {at} ends at {end_offset}, its files at {lies_to}",
                    )

    async def _until(
        self, invariant: str, missing: Callable[[], list[str]], patience_s: float
    ) -> None:
        ends_at = trio.current_time() + patience_s
        while found := missing():
            self._raise_broken()
            if trio.current_time() >= ends_at:
                raise Violation(invariant, f"not {patience_s:g} s after the end: {found}")
            await trio.sleep(LOOK_S)

    async def _attempt(
        self, invariant: str, action: Callable[[], Awaitable[None]], patience_s: float
    ) -> None:
        """Repeat an action until it succeeds. Raises Violation(`invariant`) if it has not succeeded
        after `patience_s` seconds."""
        trouble = "it takes forever"
        with trio.move_on_after(patience_s):
            while True:
                try:
                    await action()
                    self._raise_broken()
                    return
                except* (RefusedError, ConnectionLostError, NotDeliveredError) as error:
                    trouble = repr(error.exceptions)
                await trio.sleep(LOOK_S)
        raise Violation(invariant, f"not {patience_s:g} s after the end: {trouble}")

    def _raise_broken(self) -> None:
        if self._history.broken is not None:
            raise self._history.broken


async def _compare(name_of_log: str, holders: list[Replica]) -> None:
    """Check that any two replicas of a partition's log have the same batches, up to the end of the
    shorter one."""
    logs = [(machine.name, await batches_of(machine, path)) for machine, path in holders]
    end = min((max(found, default=-1) for _, found in logs), default=-1)
    start = max((min(found, default=0) for _, found in logs), default=0)
    first_name, first = logs[0]
    if is_compacted(name_of_log):
        _compare_states(name_of_log, logs)
        return
    for name, found in logs[1:]:
        ours = {at: data for at, data in first.items() if start <= at <= end}
        theirs = {at: data for at, data in found.items() if start <= at <= end}
        if ours != theirs:
            at = min(at for at in {*ours, *theirs} if ours.get(at) != theirs.get(at))
            raise Violation(
                "LogsAgree", f"{name_of_log}: {first_name} and {name} differ at offset {at}"
            )


def _compare_states(name_of_log: str, logs: list[tuple[str, dict[int, bytes]]]) -> None:
    """Check that any two replicas of a compacted log have the same last value of every key.

    Each broker compacts its replica at a different time, so a superseded or deleted record may
    exist on one replica and not on another.
    """
    end = min((max(found, default=-1) for _, found in logs), default=-1)
    first_name, first = logs[0]
    for name, found in logs[1:]:
        key = differing_key(first, found, end + 1)
        if key is not None:
            raise Violation(
                "LogsAgree", f"{name_of_log}: {first_name} and {name} differ in {key!r}"
            )


async def batches_of(machine: Machine, directory: str) -> dict[int, bytes]:
    """Return the batches in a log's directory, by their base offsets.

    The directory is read again if a cleaning replaces files meanwhile: for a moment the records of
    a segment are only in its `.swap` file.
    """
    for attempts_left in reversed(range(LOOKS_AT_FILES_MAX)):
        try:
            before = await _names_of(machine, directory)
            found = await _batches_of(machine, directory)
            after = await _names_of(machine, directory)
            if before == after and not any(name.endswith(".swap") for name in after):
                return found
        except FileNotFoundError:
            if not attempts_left:
                raise
        await trio.sleep(LOOK_S)
    raise Violation("FilesSettle", f"{machine.name}: those in {directory} change all the time")


async def _names_of(machine: Machine, directory: str) -> list[str]:
    is_there = machine.disk.exists(directory)
    return sorted(await machine.disk.listdir(directory)) if is_there else []


async def _batches_of(machine: Machine, directory: str) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    if not machine.disk.exists(directory):
        return found
    for name in await machine.disk.listdir(directory):
        if name.endswith(".log"):
            data = await machine.disk.read_file(f"{directory}/{name}")
            at = 0
            while at + BATCH_OVERHEAD <= len(data):
                size = BATCH_OVERHEAD + int.from_bytes(data[at + 8 : at + 12], "big")
                if size <= BATCH_OVERHEAD or at + size > len(data):
                    break
                found[int.from_bytes(data[at : at + 8], "big")] = data[at : at + size]
                at += size
    return found
