"""What one run is to do: said once, kept with what it found, and turned back into its command.

Pure: a plan is the same on every machine; what the machine cannot do is not decided here.
"""

import shlex
from dataclasses import asdict, dataclass, fields
from typing import Any

from ottla.model.errors import ConfigError

OWN_CLIENT = "ottla"
CLIENTS = (OWN_CLIENT, "confluent")
NO_NEMESIS = "none"

SECONDS_DEFAULT = 60.0
INTERVAL_S_DEFAULT = 10.0
"""How long a fault lasts, and how long the cluster then has for itself.

Shorter than a broker's session (9 s) and kills and pauses are over before anybody is fenced; much
longer and a minute holds too few of them.
"""

THREADS_DEFAULT = 16
"""Threads of each workload: as many operations are under way at once.

Under faults many of them wait; with ten a minute of partitions falls below the minimum of load.
"""

OPS_PER_S_MIN_DEFAULT = 500.0
"""Below it a run says nothing about a cluster that works, and is not valid."""

NODES_DEFAULT = 3
FAULTS_SHARE = 0.5
"""Of the faults that the time has room for, as many must have been injected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run: workloads side by side on one cluster, under faults, for so long."""

    workloads: tuple[str, ...]
    nemeses: tuple[str, ...] = (NO_NEMESIS,)
    clients: tuple[str, ...] = CLIENTS
    seconds: float = SECONDS_DEFAULT
    interval_s: float = INTERVAL_S_DEFAULT
    threads: int = THREADS_DEFAULT
    """Of each workload; the clients share them."""
    seed: int = 0
    controllers: int = NODES_DEFAULT
    brokers: int = NODES_DEFAULT
    flush: bool = False
    """Whether brokers flush every message (`flush.messages=1`)."""
    plain: bool = False
    """Whether to do without all that only root may: as on a machine that is somebody else's."""
    secure: bool = False
    """Whether nodes and clients show who they are, over TLS, and entries decide."""
    bootstrap: str | None = None
    """A cluster that runs already: load and checks only, no faults."""
    planted: str | None = None
    """A bug of the bank that every node has."""
    ops_per_s_min: float = OPS_PER_S_MIN_DEFAULT
    """Of all workloads together."""
    faults_min: int | None = None
    """Fewer injected faults make the run invalid; None: half of what the time has room for."""

    def __post_init__(self) -> None:
        for option, values in (
            ("--workload", self.workloads),
            ("--nemesis", self.nemeses),
            ("--clients", self.clients),
        ):
            if not values or len(set(values)) != len(values):
                raise ConfigError(option, f"is {','.join(values)!r}; name each once, at least one")
        for client in self.clients:
            if client not in CLIENTS:
                raise ConfigError("--clients", f"is {client!r}; it must be of {', '.join(CLIENTS)}")
        if self.seconds <= 0 or self.interval_s <= 0:
            raise ConfigError("--for", "and --interval must be longer than nothing")
        if self.threads < len(self.clients):
            raise ConfigError("--threads", f"is {self.threads}; each client needs one at least")
        if self.bootstrap is not None and self.faults:
            raise ConfigError(
                "--nemesis", "hurts clusters of its own only; with --bootstrap leave it out"
            )
        if self.bootstrap is not None and self.secure:
            raise ConfigError("--secure", "needs nodes of its own; leave --bootstrap out")
        if self.bootstrap is not None and self.planted is not None:
            raise ConfigError("--planted", "needs nodes of its own; leave --bootstrap out")

    @property
    def faults(self) -> tuple[str, ...]:
        """The nemeses that do something."""
        return tuple(name for name in self.nemeses if name != NO_NEMESIS)

    @property
    def nemesis(self) -> str:
        """The faults' name, as in the name of a folder: `kill+partition-one`, or `none`."""
        return "+".join(self.nemeses)

    @property
    def fault_count_min(self) -> int:
        """How many faults must be injected for the run to mean anything."""
        if not self.faults:
            return 0
        if self.faults_min is not None:
            return self.faults_min
        return max(1, int(FAULTS_SHARE * self.seconds / (2 * self.interval_s)))

    def test_of(self, workload: str) -> str:
        """Return the name of the folder that holds this test's runs."""
        return "-".join(
            [
                workload,
                self.nemesis,
                *(["secure"] if self.secure else []),
                *(["planted", self.planted] if self.planted else []),
            ]
        )

    def client_of(self, thread: int) -> str:
        """Return the client that a thread (0 …) works with."""
        return self.clients[thread % len(self.clients)]

    def command(self) -> str:
        """Return the command that does the same again."""
        words = ["ottla", "jepsen", "run", "--workload", ",".join(self.workloads)]
        words += ["--nemesis", ",".join(self.nemeses), "--clients", ",".join(self.clients)]
        words += ["--for", duration_text(self.seconds), "--seed", str(self.seed)]
        default = RunPlan(workloads=self.workloads)
        for option, value, usual in (
            ("--interval", duration_text(self.interval_s), duration_text(default.interval_s)),
            ("--threads", str(self.threads), str(default.threads)),
            ("--controllers", str(self.controllers), str(default.controllers)),
            ("--brokers", str(self.brokers), str(default.brokers)),
            ("--bootstrap", self.bootstrap, None),
            ("--planted", self.planted, None),
            ("--min-ops", f"{self.ops_per_s_min:g}", f"{default.ops_per_s_min:g}"),
            ("--min-faults", None if self.faults_min is None else str(self.faults_min), None),
        ):
            if value is not None and value != usual:
                words += [option, value]
        words += ["--flush"] if self.flush else []
        words += ["--plain"] if self.plain else []
        words += ["--secure"] if self.secure else []
        return shlex.join(words)

    def to_json(self) -> dict[str, Any]:
        """Return it as test.json keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "RunPlan":
        """Take it from test.json; ConfigError when it is something else."""
        names = {field.name for field in fields(cls)}
        kept: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in found.items()
            if name in names
        }
        if "workloads" not in kept:
            raise ConfigError("test.json", "names no workload; it was not written by a run")
        return cls(**kept)


def duration_text(seconds: float) -> str:
    """Return a duration as the command line takes it."""
    return f"{seconds:g}s" if float(seconds).is_integer() else f"{round(seconds * 1_000)}ms"
