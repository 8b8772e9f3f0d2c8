"""The parameters of one run, which are stored with its results and can be turned back into its
command.

The module is pure: a plan is the same on every machine. Limits of the machine are applied
elsewhere.
"""

import shlex
from dataclasses import asdict, dataclass, fields
from typing import Any

from ottla.model.errors import ConfigError

OWN_CLIENT = "ottla"
CLIENTS = (OWN_CLIENT, "confluent")
"""Names of the kinds of clients that a run uses by default."""
OPTIONAL_CLIENTS = ("java",)
"""Kinds of clients that need additional programs. Only some workloads support them."""
NO_NEMESIS = "none"

SECONDS_DEFAULT = 60.0
INTERVAL_S_DEFAULT = 10.0
"""Default duration of a fault, and of the time without faults after it, in seconds.

With an interval shorter than a broker's session timeout (9 s), kills and pauses would end before a
broker is fenced. With a much longer interval, a run of a minute would have too few faults.
"""

THREADS_DEFAULT = 16
"""Default number of threads of each workload, which is also its number of concurrent operations.

Many threads wait while a fault is active. With ten threads, a minute of network partitions would
not reach the minimum load.
"""

OPS_PER_S_MIN_DEFAULT = 500.0
"""Default minimum number of operations per second of a valid run. A run with fewer operations shows
nothing about a working cluster."""

NODES_DEFAULT = 3
FAULTS_SHARE = 0.5
"""Minimum fraction of the possible faults that a valid run must have injected. The number of
possible faults follows from the duration of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Parameters of one run: parallel workloads on one cluster, the faults, and the duration."""

    workloads: tuple[str, ...]
    nemeses: tuple[str, ...] = (NO_NEMESIS,)
    clients: tuple[str, ...] = CLIENTS
    seconds: float = SECONDS_DEFAULT
    interval_s: float = INTERVAL_S_DEFAULT
    threads: int = THREADS_DEFAULT
    """Number of threads (concurrent clients) of each workload. They are divided among the kinds of
    clients."""
    seed: int = 0
    controllers: int = NODES_DEFAULT
    brokers: int = NODES_DEFAULT
    flush: bool = False
    """True if brokers flush every message (`flush.messages=1`)."""
    plain: bool = False
    """True to run the cluster without root privileges, even if the machine grants them."""
    secure: bool = False
    """True to use TLS, authentication and ACLs in the cluster under test."""
    bootstrap: str | None = None
    """Address of a running cluster to test, or None to start a cluster. The run sends load to a
    running cluster and checks it, but injects no faults."""
    planted: str | None = None
    """Name of a deliberate bug to put into every node, or None for nodes without a bug."""
    ops_per_s_min: float = OPS_PER_S_MIN_DEFAULT
    """Minimum number of operations per second for the run to be valid, over all workloads."""
    faults_min: int | None = None
    """Minimum number of injected faults for the run to be valid. None means half of the faults
    possible in the run's duration."""

    def __post_init__(self) -> None:
        for option, values in (
            ("--workload", self.workloads),
            ("--nemesis", self.nemeses),
            ("--clients", self.clients),
        ):
            if not values or len(set(values)) != len(values):
                raise ConfigError(option, f"is {','.join(values)!r}; name each once, at least one")
        for client in self.clients:
            known = (*CLIENTS, *OPTIONAL_CLIENTS)
            if client not in known:
                raise ConfigError(
                    "--clients", f"is {client!r}; it must be one of {', '.join(known)}"
                )
        if self.seconds <= 0 or self.interval_s <= 0:
            raise ConfigError("--for", "and --interval must be longer than 0")
        if self.threads < len(self.clients):
            raise ConfigError(
                "--threads", f"is {self.threads}; each client kind needs at least one"
            )
        if self.bootstrap is not None and self.faults:
            raise ConfigError(
                "--nemesis",
                "needs a cluster that the run starts itself; leave it out with --bootstrap",
            )
        if self.bootstrap is not None and self.secure:
            raise ConfigError(
                "--secure", "needs a cluster that the run starts itself; leave --bootstrap out"
            )
        if self.bootstrap is not None and self.planted is not None:
            raise ConfigError(
                "--planted", "needs a cluster that the run starts itself; leave --bootstrap out"
            )

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the planned nemeses (kinds of faults), except the nemesis without faults."""
        return tuple(name for name in self.nemeses if name != NO_NEMESIS)

    @property
    def nemesis(self) -> str:
        """Names of the planned faults, joined as in the name of a run's folder:
        `kill+partition-one`, or `none`."""
        return "+".join(self.nemeses)

    @property
    def fault_count_min(self) -> int:
        """Minimum number of injected faults for the run to be valid."""
        if not self.faults:
            return 0
        if self.faults_min is not None:
            return self.faults_min
        return max(1, int(FAULTS_SHARE * self.seconds / (2 * self.interval_s)))

    def test_of(self, workload: str) -> str:
        """Return the name of the test that runs a workload with this plan. Its runs are in a folder
        of this name."""
        return "-".join(
            [
                workload,
                self.nemesis,
                *(["secure"] if self.secure else []),
                *(["planted", self.planted] if self.planted else []),
            ]
        )

    def client_of(self, thread: int) -> str:
        """Return the kind of client that a workload's thread uses. Threads are numbered from 0."""
        return self.clients[thread % len(self.clients)]

    def command(self) -> str:
        """Return the command line that repeats the run of this plan."""
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
        """Return the plan as JSON, in the form that test.json uses."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "RunPlan":
        """Parse the JSON of a plan in test.json, and return the plan. Raises ConfigError if it is
        malformed."""
        names = {field.name for field in fields(cls)}
        kept: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in found.items()
            if name in names
        }
        if "workloads" not in kept:
            raise ConfigError("test.json", "has no workload; it was not written by a run")
        return cls(**kept)


def duration_text(seconds: float) -> str:
    """Return a duration in seconds as text, in the form that the command line accepts."""
    return f"{seconds:g}s" if float(seconds).is_integer() else f"{round(seconds * 1_000)}ms"
