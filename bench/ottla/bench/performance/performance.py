"""Benchmarks of docs/performance.md. The values are stored as JSON and rendered as one page.

A run measures some groups of benchmarks in one cluster topology (number of controllers, brokers and
replicas). All servers run at the same time and take turns, after one round that warms up the
servers. The values of every round are stored, so one page can combine several runs, and can be
generated again.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ottla.bench.clients import ClientInstallation, run_clients
from ottla.bench.floor.floor import FLOOR, open_floors
from ottla.bench.kafka.beside_kafka import EQUAL_SETTINGS, OTTLA_SETTINGS, ends_by_sigterm
from ottla.bench.kafka.comparison import OURS, THEIRS
from ottla.bench.kafka.kafka_cluster import open_kafka_cluster
from ottla.bench.kafka.kafka_server import open_kafka, version_of
from ottla.bench.local_cluster import RunningCluster, open_local_cluster
from ottla.bench.performance.performance_rows import (
    GOALS,
    ONE,
    PARTITIONS,
    SETTLE_S,
    THREE,
    Figures,
    PerformanceRow,
    deaths,
    floor_values,
    memory_with_partitions,
    rows_of,
)
from ottla.bench.performance.queue_rows import QUEUE_RECORDS, queue_rows
from ottla.bench.performance.work_rows import work_rows
from ottla.bench.processes import cpu_seconds, shared_once_bytes, usage_of
from ottla.bench.programs.franz_client import build_franz, has_go
from ottla.bench.programs.program_rows import PROGRAMS, program_rows
from ottla.bench.result import MB
from ottla.bench.topics import RunTopics
from ottla.model.errors import ConfigError

NODES = {ONE: 1, THREE: 3}
FORM_TIMEOUT_S = 60
CLIENT_RECORDS = 200_000
IDLE_WINDOWS = 3
IDLE_WINDOW_S = 5.0
DEATHS_OF = THREE
CLIENTS_OF = ONE
QUEUES = "queues"
QUEUES_OF = ONE
PROGRAMS_OF = ONE
LIBRDKAFKA = "librdkafka"
CLIENT_BROKER = "client_broker"
"""Name of the machine fact that contains the label of the column whose broker serves the clients of
the client comparison."""

Say = Callable[[str], None]
"""Callback that receives a sentence about the next measurement, to show the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGroup:
    """Results of one group of benchmarks (one section of docs/performance.md) in one cluster
    topology, and the machine on which they were measured."""

    group: str
    topology: str
    machine: Mapping[str, Any]
    values: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    """Measured values of all rounds, by benchmark, name of the value and server."""

    def add(self, row: str, server: str, figures: Figures) -> None:
        """Add the values that the benchmark `row` has measured on one server in one round."""
        for figure, value in figures.items():
            self.values.setdefault(row, {}).setdefault(figure, {}).setdefault(server, []).append(
                value
            )

    def keep(self, directory: Path) -> None:
        """Write the group's measured values to a file in the directory. The file replaces an
        earlier file of the same group and topology."""
        directory.mkdir(parents=True, exist_ok=True)
        shown = {
            "group": self.group,
            "topology": self.topology,
            "machine": dict(self.machine),
            "values": {
                row: {
                    figure: {
                        server: [float(f"{value:.5g}") for value in values]
                        for server, values in servers.items()
                    }
                    for figure, servers in figures.items()
                }
                for row, figures in self.values.items()
            },
        }
        path = directory / f"{self.group}-{self.topology}.json"
        path.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")


def read_sittings(directory: Path) -> list[MeasuredGroup]:
    """Return the stored values of all groups of benchmarks, in the order of the page. Raises
    ConfigError if nothing is stored."""
    read = [json.loads(path.read_text()) for path in directory.glob("*.json")]
    found = [MeasuredGroup(**one) for one in read if "group" in one]
    if not found:
        raise ConfigError("--out", f"names {directory}, where no measurement is kept")
    order = list(GOALS)
    return sorted(found, key=lambda one: (one.topology, order.index(one.group)))


def read_reports(directory: Path) -> list[dict[str, Any]]:
    """Return the JSON reports of other comparisons with Kafka, which are stored in the
    same directory.

    Each report has "what" and "rows".  If a report has rows of fresh and of warm servers, only the
    rows of warm servers are returned.
    """
    found = []
    for path in sorted(directory.glob("*.json")):
        one = json.loads(path.read_text())
        rows = one.get("rows") or one.get("warm") or []
        if "what" in one and rows and all("verdict" in row for row in rows):
            found.append({"what": one["what"], "rows": rows})
    return found


def form_of(python: str) -> str:
    """Return a description of how Ottla is installed in an interpreter, such as "compiled, Python
    3.13.0".

    Raises ConfigError if Ottla is not installed in it.
    """
    asked = (
        "import platform; from ottla.model.compiled import installed_form; "
        "print(f'{installed_form()}, Python {platform.python_version()}')"
    )
    ended = subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, timeout=FORM_TIMEOUT_S, check=False
    )
    if ended.returncode:
        raise ConfigError("--form", f"names {python}, which has no Ottla; install it there")
    return ended.stdout.strip()


def machine_facts(kafka_version: str, forms: Mapping[str, str]) -> dict[str, Any]:
    """Return a description of the machine and of the software versions, for the page.

    `forms` maps column labels to Python interpreters.
    """
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kafka": kafka_version,
        "forms": {label: form_of(python) for label, python in forms.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceRun:
    """One run of `ottla bench performance`. It runs some groups of benchmarks, each of which is a
    row of a table in docs/performance.md."""

    jars: Path
    directory: Path
    groups: Collection[str]
    topology: str
    rounds: int
    timeout_s: float
    forms: Mapping[str, str]
    """Python interpreters in which other forms of Ottla (such as compiled) are installed, by the
    label of their column on the page."""
    queue_records: int = QUEUE_RECORDS
    """Number of records that are consumed in one measurement of the group `queues`."""

    def run(self, say: Say) -> None:
        """Run each group of benchmarks, and store its values after every round. Stops at the
        deadline."""
        deadline = time.monotonic() + self.timeout_s
        forms = {OURS: sys.executable, **self.forms}
        machine = machine_facts(version_of(self.jars), forms)
        sittings = {
            group: MeasuredGroup(group=group, topology=self.topology, machine=machine)
            for group in self.groups
        }
        if "client" in sittings:
            served = {**machine, CLIENT_BROKER: self._client_broker}
            sittings["client"] = MeasuredGroup(
                group="client", topology=self.topology, machine=served
            )
        with ends_by_sigterm(), tempfile.TemporaryDirectory(prefix="ottla-bench-") as built:
            if "lifecycle" in self.groups:
                self._lifecycle(sittings["lifecycle"], say, deadline)
            if set(self.groups) - {"lifecycle"}:
                rows = self._rows(Path(built), say)
                with self._servers() as servers:
                    self._measure(servers, rows, sittings, say, deadline)

    def _rows(self, built: Path, say: Say) -> list[tuple[str, PerformanceRow]]:
        """Return the benchmarks that run in rounds, as pairs (group, benchmark). Their programs are
        built in the directory `built`."""
        rows = rows_of(self.groups, self.topology) + work_rows(self.groups, self.topology)
        if QUEUES in self.groups and self.topology == QUEUES_OF:
            rows += [(QUEUES, row) for row in queue_rows(self.jars, self.queue_records)]
        if PROGRAMS in self.groups and self.topology == PROGRAMS_OF:
            franz = None
            if has_go():
                say("building the program with franz-go")
                franz = build_franz(built)
            else:
                say("Go is missing: the rows of franz-go are not measured")
            rows += [(PROGRAMS, row) for row in program_rows(self.jars, franz)]
        return rows

    def _keep_all(self, sittings: Mapping[str, MeasuredGroup]) -> None:
        """Write all values measured so far to files. A failure of the run then loses at most one
        round."""
        for sitting in sittings.values():
            if sitting.values:
                sitting.keep(self.directory)

    def _measure(
        self,
        servers: Mapping[str, RunningCluster],
        rows: Sequence[tuple[str, PerformanceRow]],
        sittings: Mapping[str, MeasuredGroup],
        say: Say,
        deadline: float,
    ) -> None:
        replicas = NODES[self.topology]
        memory = sittings.get("memory")
        time.sleep(SETTLE_S)
        self._weigh(memory, "idle", servers)
        self._rest(memory, "idle", servers)
        for _, row in rows:
            for cluster in servers.values() if row.prepare else ():
                assert row.prepare is not None
                row.prepare(cluster, replicas)
        with_floor = {row.name: row.floor for _, row in rows if row.floor is not None}
        with open_floors(with_floor, servers[OURS]) as floors:
            for number in range(self.rounds + 1):
                for group, row in rows:
                    if time.monotonic() > deadline:
                        break
                    floor = floors.get(row.name)
                    names = [*servers, *([FLOOR] if floor else [])]
                    taken: dict[str, Figures] = {}
                    for name in names[:: -1 if number % 2 else 1]:
                        say(f"round {number} of {self.rounds}: {row.name}, {name}")
                        if name in servers:
                            taken[name] = row.run(servers[name], replicas)
                        elif floor is not None and row.floor is not None:
                            taken[name] = floor_values(row.floor, floor)
                    for name, figures in taken.items() if number else ():
                        sittings[group].add(row.name, name, figures)
                self._keep_all(sittings)
        self._weigh(memory, "after the load", servers)
        self._keep_all(sittings)
        if time.monotonic() > deadline:
            say("the time is over: what is left was not measured")
            return
        if memory is not None:
            for many, count in PARTITIONS.items():
                for name, cluster in servers.items():
                    say(f"memory with {many}, {name}")
                    memory_with_partitions(cluster, replicas, count)
                self._weigh(memory, many, servers)
        if "client" in self.groups and self.topology == CLIENTS_OF:
            say("clients")
            self._clients(sittings["client"], servers[self._client_broker])
        self._keep_all(sittings)

    @staticmethod
    def _weigh(
        memory: MeasuredGroup | None, row: str, servers: Mapping[str, RunningCluster]
    ) -> None:
        """Measure the memory of all servers."""
        for name, cluster in servers.items() if memory is not None else ():
            found = {
                "shared_once_mb": shared_once_bytes(cluster.all_pids) / MB,
                "resident_mb": usage_of(list(cluster.pids.values())).rss_bytes / MB,
            }
            assert memory is not None
            memory.add(row, name, found)

    @staticmethod
    def _rest(
        memory: MeasuredGroup | None, row: str, servers: Mapping[str, RunningCluster]
    ) -> None:
        """Measure the CPU that all servers use without any load."""
        for _ in range(IDLE_WINDOWS) if memory is not None else ():
            before = {name: cpu_seconds(list(one.pids.values())) for name, one in servers.items()}
            time.sleep(IDLE_WINDOW_S)
            for name, cluster in servers.items():
                used_s = cpu_seconds(list(cluster.pids.values())) - before[name]
                figures = {"idle_cpu_ms_per_second": 1_000 * used_s / IDLE_WINDOW_S}
                assert memory is not None
                memory.add(row, name, figures)

    @property
    def _client_broker(self) -> str:
        """Label of the server that serves all clients of the client comparison: the first further
        form of Ottla. A compiled broker leaves more of the machine to the clients."""
        return next(iter(self.forms), OURS)

    def _clients(self, sitting: MeasuredGroup, cluster: RunningCluster) -> None:
        forms = {OURS: sys.executable, **self.forms}
        clients = {label: ClientInstallation("ottla", python) for label, python in forms.items()}
        clients[LIBRDKAFKA] = ClientInstallation("confluent-kafka", sys.executable)
        topics = RunTopics(cluster.bootstrap, None, is_kept=True)
        for _ in range(self.rounds):
            found = run_clients(
                cluster.bootstrap,
                topics=topics,
                count=CLIENT_RECORDS,
                rounds=1,
                progress=lambda _: None,
                clients=clients,
            )
            for row, figures in found.items():
                what, _, client = row.partition(", ")
                if client in clients:
                    given = {
                        "cpu_us_per_record": figures["cpu_us_each"],
                        "records_per_second": figures["per_second"],
                        "thread_share": figures["thread_share"],
                    }
                    sitting.add(what[:1].upper() + what[1:], client, given)

    def _lifecycle(self, sitting: MeasuredGroup, say: Say, deadline: float) -> None:
        openers = self._openers()
        for number in range(self.rounds + 1):  # Round 0 warms up the servers.
            for name in list(openers)[:: -1 if number % 2 else 1]:
                say(f"round {number} of {self.rounds}: start and end, {name}")
                with openers[name]() as cluster:
                    if number == 0:
                        continue
                    figures = {"start_to_ready_s": cluster.ready_s}
                    if self.topology == DEATHS_OF:
                        time.sleep(SETTLE_S)
                        figures |= deaths(cluster)
                count = NODES[self.topology]
                sitting.add(f"{count} + {count} nodes", name, figures)
            sitting.keep(self.directory)
            if time.monotonic() > deadline:
                return

    @contextmanager
    def _servers(self) -> Iterator[dict[str, RunningCluster]]:
        """Start all servers of the comparison and yield them by name. They are stopped at the end
        of the block.

        Each form of Ottla is started once before, so that its modules have bytecode, like those of
        an installed package. A node that compiles them keeps some 5 MB more.
        """
        openers = self._openers()
        for label in (OURS, *self.forms):
            with openers[label]():
                pass
        with ExitStack() as stack:
            yield {name: stack.enter_context(opened()) for name, opened in openers.items()}

    def _openers(self) -> dict[str, Callable[[], Any]]:
        count = NODES[self.topology]
        replicas = str(count)
        settings = {
            **EQUAL_SETTINGS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str((count + 1) // 2),
            "min.insync.replicas": str((count + 1) // 2),
            "log.cleaner.backoff.ms": "200",
        }

        def ours(python: str) -> Callable[[], Any]:
            given = {**OTTLA_SETTINGS, **settings}
            return lambda: open_local_cluster(
                controllers=count, brokers=count, restarts=False, python=python, **given
            )

        def theirs() -> Any:
            if self.topology == THREE:
                return open_kafka_cluster(self.jars, settings)
            return _open_one_kafka(self.jars, settings)

        forms = {label: ours(python) for label, python in self.forms.items()}
        return {OURS: ours(sys.executable), **forms, THEIRS: theirs}


@contextmanager
def _open_one_kafka(jars: Path, settings: Mapping[str, str]) -> Iterator[RunningCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-kafka-") as directory,
        open_kafka(jars, Path(directory), settings) as kafka,
    ):
        yield RunningCluster(kafka.bootstrap, {"broker 1": kafka.pid}, kafka.ready_s)


def groups_of(text: str) -> list[str]:
    """Return the names of groups of benchmarks in a comma-separated list. Raises ConfigError if one
    is unknown."""
    names = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in GOALS]
    if unknown:
        raise ConfigError("--groups", f"has no {unknown[0]!r}; there are {', '.join(GOALS)}")
    return names


def forms_of(given: Sequence[str]) -> dict[str, str]:
    """Return the Python interpreters in which Ottla is installed in other forms, by the form's
    label.

    Each given text is LABEL=PYTHON, such as `compiled=/venv/bin/python`. Raises ConfigError if a
    text is malformed, a label is reserved, or an interpreter is not executable.
    """
    found: dict[str, str] = {}
    for text in given:
        label, _, python = text.partition("=")
        if not label or label in (OURS, THEIRS) or not os.access(python, os.X_OK):
            raise ConfigError("--form", f"is {text!r}; it must be LABEL=PYTHON, a program")
        found[label] = python
    return found
