"""Plans of simulated runs: the cluster, the faults, and the moments at which faults begin.

All of them are immutable values with a readable text and a JSON form. A run depends only on its
`ClusterPlan` and its `FaultSchedule`, so a failure is replayed from these two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from ottla.wire.apis import API

API_NAMES = frozenset(row.name for row in API.values())
"""Kafka's names of the APIs to which a `Request` moment can refer."""

When: TypeAlias = Literal["sent", "answered"]
Json: TypeAlias = dict[str, Any]

SECONDS_MAX = 86_400.0
"""Maximum of every time in a fault schedule, in virtual seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """The simulated cluster of a run: its size, its settings and the seed of all random choices."""

    __qualname__ = "ClusterPlan"  # its public name, which `repr` shows

    brokers: int = 1
    """Number of brokers, at most 9."""
    controllers: int = 1
    """Number of controllers: 1, 3 or 5."""
    seed: int = 0
    """Seed of every random choice of the run: delays, the order of tasks, and random numbers of the
    program."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of all nodes, by Kafka's name of the setting. They override the defaults of a
    simulated world."""

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= 9:
            raise ValueError(f"a world has 1 to 9 brokers, not {self.brokers}")
        if self.controllers not in (1, 3, 5):
            raise ValueError(f"a world has 1, 3 or 5 controllers, not {self.controllers}")
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"the seed is outside 0 to 2**64 - 1: {self.seed}")

    def __str__(self) -> str:
        nodes = f"{_counted(self.brokers, 'broker')}, {_counted(self.controllers, 'controller')}"
        settings = "".join(f", {key}={value}" for key, value in sorted(self.settings.items()))
        return f"{nodes}, seed {self.seed}{settings}"

    def to_json(self) -> Json:
        """Return this plan as JSON values."""
        return {
            "brokers": self.brokers,
            "controllers": self.controllers,
            "seed": self.seed,
            "settings": dict(sorted(self.settings.items())),
        }

    @classmethod
    def from_json(cls, values: Json) -> "WorldPlan":
        """Return the plan in `values`. Raises ValueError or TypeError if they are not a plan."""
        return cls(**values)


# ---- moments


@dataclass(frozen=True, slots=True)
class At:
    """Moment of a fault, given as a virtual time."""

    seconds: float
    """Virtual seconds since the scenario began."""

    def __post_init__(self) -> None:
        _check_seconds("a moment", self.seconds)

    def __str__(self) -> str:
        return f"{self.seconds:g} s after the start"


@dataclass(frozen=True, slots=True)
class Request:
    """Moment of one request of the instance. Requests are counted by API over all connections and
    lives (runs) of the instance.

    "sent": the broker has received the request, and the instance has no response yet. "answered":
    the instance has received the response and all its tasks have reacted to it, but nothing that
    they sent since has arrived.
    """

    api: str
    """Name of the request in Kafka's protocol, such as `OffsetCommit`."""
    number: int = 1
    """Number of the request among those with the same name, from 1."""
    when: When = "sent"

    def __post_init__(self) -> None:
        if self.api not in API_NAMES:
            raise ValueError(f"Kafka has no request named {self.api!r}; an example is 'Fetch'")
        if self.number < 1:
            raise ValueError(f"requests are numbered from 1, not {self.number}")
        if self.when not in ("sent", "answered"):
            raise ValueError(f"`when` is 'sent' or 'answered', not {self.when!r}")

    def __str__(self) -> str:
        request = f"its {ordinal(self.number)} {self.api} request"
        if self.when == "sent":
            return f"{request} has reached the broker, before the response arrives"
        return f"it has received the response to {request}"


@dataclass(frozen=True, slots=True)
class MarkMoment:
    """Moment at which the instance reaches a named point of its code: a call of `world.mark(name)`,
    or a step of a store such as `store.commit`."""

    __qualname__ = "Mark"  # its public name, which `repr` shows

    name: str
    number: int = 1
    """Number of the call or step among all with this name, counted from 1 over all lives (runs of
    the program) of the instance."""

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"marks are numbered from 1, not {self.number}")

    def __str__(self) -> str:
        return f"it passes the mark {self.name!r} for the {ordinal(self.number)} time"


Moment: TypeAlias = At | Request | MarkMoment

# ---- faults


@dataclass(frozen=True, slots=True)
class KillFault:
    """Fault that ends the process of an instance at once, without any cleanup, as by SIGKILL."""

    __qualname__ = "Kill"  # its public name, which `repr` shows

    instance: int
    """Index of the killed instance in the list of started instances. It is taken modulo the length
    of the list."""
    moment: Moment
    restart_after_s: float = 1.0
    """Virtual seconds after which the killed instance is started again."""

    def __post_init__(self) -> None:
        _check_seconds("a restart", self.restart_after_s)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the instance."""
        restart = f"start it again after {self.restart_after_s:g} s"
        return f"kill {who} {_when(self.moment)}; {restart}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Fault that stops an instance cleanly, as a deployment does, and starts it again."""

    instance: int
    moment: Moment
    restart_after_s: float = 1.0

    def __post_init__(self) -> None:
        _check_seconds("a restart", self.restart_after_s)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the instance."""
        restart = f"start it again after {self.restart_after_s:g} s"
        return f"stop {who} cleanly {_when(self.moment)}; {restart}"


@dataclass(frozen=True, slots=True)
class PauseFault:
    """Fault that suspends the process of an instance for a time, as during a long garbage
    collection or in a suspended virtual machine. Its connections remain open."""

    __qualname__ = "Pause"  # its public name, which `repr` shows

    instance: int
    moment: Moment
    seconds: float = 60.0

    def __post_init__(self) -> None:
        _check_seconds("a pause", self.seconds)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the instance."""
        return f"pause {who} for {self.seconds:g} s {_when(self.moment)}"


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Fault that cuts a connection of an instance after the broker has handled a request and before
    its response arrives. With a moment that names no request, this affects the next response."""

    instance: int
    moment: Moment

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the instance."""
        if isinstance(self.moment, Request):
            moment = self.moment
            return (
                f"lose the response to the {ordinal(moment.number)} {moment.api} request of {who}"
            )
        return f"lose the next response to {who} {_when(self.moment)}"


@dataclass(frozen=True, slots=True)
class SlowInstance:
    """Fault that delays messages to and from an instance for a time."""

    instance: int
    moment: Moment
    seconds: float = 10.0
    delay_s: float = 1.0
    """Maximum delay of each message in virtual seconds. On average, a message is delayed by about
    half of it."""

    def __post_init__(self) -> None:
        _check_seconds("a slow network", self.seconds)
        _check_seconds("a delay", self.delay_s)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the instance."""
        for_s = f"for {self.seconds:g} s"
        return f"delay messages of {who} by up to {self.delay_s:g} s {for_s} {_when(self.moment)}"


@dataclass(frozen=True, slots=True)
class PartitionFault:
    """Fault that cuts the network between an instance and a broker for a time. TCP delivers the
    messages afterwards."""

    __qualname__ = "Partition"  # its public name, which `repr` shows

    instance: int
    broker: int
    """Index of the broker in the list of brokers, modulo the length of the list."""
    moment: Moment
    seconds: float = 10.0

    def __post_init__(self) -> None:
        _check_seconds("a partition", self.seconds)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` contains the names of the instance and of the
        broker."""
        return f"cut the network between {who} for {self.seconds:g} s {_when(self.moment)}"


@dataclass(frozen=True, slots=True)
class KillBroker:
    """Fault that ends the process of a broker at once, and starts it again later. The broker's
    leaderships and coordinators move to other brokers, if there are any. A moment other than `At`
    refers to the instance with index 0."""

    broker: int
    moment: Moment
    restart_after_s: float = 5.0

    def __post_init__(self) -> None:
        _check_seconds("a restart", self.restart_after_s)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the broker."""
        restart = f"start it again after {self.restart_after_s:g} s"
        return f"kill {who} {_when(self.moment, BROKER_MOMENT)}; {restart}"


@dataclass(frozen=True, slots=True)
class FillDisk:
    """Fault that fills the disk of a broker for a time. A moment other than `At` refers to the
    instance with index 0."""

    broker: int
    moment: Moment
    seconds: float = 10.0

    def __post_init__(self) -> None:
        _check_seconds("a full disk", self.seconds)

    def text(self, who: str) -> str:
        """Return a description of this fault. `who` is the name of the broker."""
        when = _when(self.moment, BROKER_MOMENT)
        return f"fill the disk of {who} for {self.seconds:g} s {when}"


Fault: TypeAlias = (
    KillFault
    | Stop
    | PauseFault
    | LoseAnswer
    | SlowInstance
    | PartitionFault
    | KillBroker
    | FillDisk
)
FAULTS: dict[str, type[Fault]] = {
    kind.__qualname__: kind
    for kind in (
        KillFault,
        Stop,
        PauseFault,
        LoseAnswer,
        SlowInstance,
        PartitionFault,
        KillBroker,
        FillDisk,
    )
}
MOMENTS: dict[str, type[Moment]] = {kind.__qualname__: kind for kind in (At, Request, MarkMoment)}
BROKER_MOMENT = "instance 0: "
"""Prefix in the text of a broker's fault whose moment is a request or a mark. Such a moment refers
to the instance with index 0."""


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """The faults of a run. Each of them happens at most once."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return self.text()

    def text(self, names: Sequence[str] = ()) -> str:
        """Return one line for each fault. `names` are the names of the started instances in their
        order, if they are known."""
        if not self.faults:
            return "no faults"
        return "\n".join(fault_text(fault, names) for fault in self.faults)

    def to_json(self) -> list[Json]:
        """Return this schedule as JSON values."""
        return [_to_json(fault) for fault in self.faults]

    @classmethod
    def from_json(cls, values: Sequence[Json]) -> "FaultSchedule":
        """Return the schedule in `values`. Raises ValueError, KeyError or TypeError if they are not
        a schedule."""
        return cls(tuple(_fault_from_json(one) for one in values))


def fault_text(fault: Fault, names: Sequence[str] = ()) -> str:
    """Return a description of a fault with the names of instances and brokers. `names` are the
    names of the started instances in their order, if they are known."""
    if isinstance(fault, KillBroker | FillDisk):
        return fault.text(f"broker {fault.broker + 1}")
    index = fault.instance
    who = names[index % len(names)] if names else f"instance {index}"
    if isinstance(fault, PartitionFault):
        who = f"{who} and broker {fault.broker + 1}"
    return fault.text(who)


def ordinal(number: int) -> str:
    """Return an ordinal number in digits, such as `3rd`."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _when(moment: Moment, prefix: str = "") -> str:
    if isinstance(moment, At):
        return str(moment)
    return f"when {prefix}{moment}"


def _to_json(value: Fault | Moment) -> Json:
    found: Json = {"kind": type(value).__qualname__}
    for one in fields(value):
        part = getattr(value, one.name)
        found[one.name] = _to_json(part) if isinstance(part, At | Request | MarkMoment) else part
    return found


def _fault_from_json(values: Json) -> Fault:
    parts = dict(values)
    kind = FAULTS[parts.pop("kind")]
    moment = dict(parts.pop("moment"))
    parts["moment"] = MOMENTS[moment.pop("kind")](**moment)
    return kind(**parts)


def _check_seconds(what: str, seconds: float) -> None:
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"{what} takes 0 to {SECONDS_MAX:g} seconds, not {seconds}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
