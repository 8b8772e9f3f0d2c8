"""The end-of-process oracle for controllers: no gRPC request may end one, or keep it from serving.

`hunt` sends the requests of `grpc_requests`, and whatever chance makes of them, to controllers that
are processes of their own, some at a time, while a neighbour of each asks what every node asks
first and must be answered.  Afterwards the controllers must have a leader that decides.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from time import monotonic

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.oracles import grpc_requests
from ottla.jepsen.oracles.grpc_target import fill, open_caller
from ottla.jepsen.oracles.kafka_values import ClusterNames
from ottla.model.errors import RefusedError
from ottla.proto import controller_pb2 as pb
from ottla.rpc import controller_methods as methods
from ottla.rpc.cluster_id import CLUSTER_ID

LARGE_TOPIC_PARTITIONS = 100
BYTES_MAX = 8 << 10
STRANGERS = 4
STRANGER_WAIT_S = 0.5
SETTLED_S_MAX = 60.0
NEIGHBOUR_REST_S = 0.2
REJECTED_BROKER = pb.HeartbeatRequest(broker_id=-7)
"""A heartbeat that only the active controller refuses for its content."""


@dataclass(slots=True)
class ControllerHuntReport:
    """What a hunt did and found."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    neighbour_count: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.outcomes.total():,} requests, "
            f"{self.neighbour_count:,} answers to neighbours, {dict(self.outcomes)}; "
            f"{self.violations}"
        )


def hunt(
    addresses: Sequence[str], *, seed: int, seconds: float, deaths: Callable[[], Sequence[str]]
) -> ControllerHuntReport:
    """Send requests to controllers for some seconds; return what they did.

    `deaths` says which processes ended, each with its last words.
    """
    report = ControllerHuntReport(seed)
    leader = wait_for_leader(addresses)
    if leader is None:
        report.violations.append("no controller leads before the first request")
        return report
    with open_caller(leader) as caller:
        truth, names = fill(caller, large_topic_partitions=LARGE_TOPIC_PARTITIONS)
    ends_at = monotonic() + seconds
    threads = [
        threading.Thread(
            target=_stranger, args=(address, f"{seed}/{at}", truth, names, ends_at, report)
        )
        for address in addresses
        for at in range(STRANGERS)
    ]
    threads += [
        threading.Thread(target=_neighbour, args=(address, ends_at, report))
        for address in addresses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report.violations.extend(deaths())
    if not report.violations and wait_for_leader(addresses) is None:
        report.violations.append(f"no controller leads {SETTLED_S_MAX} s after the last request")
    return report


def wait_for_leader(addresses: Sequence[str]) -> str | None:
    """Return the address of the controller that decides; None if none does in time."""
    ends_at = monotonic() + SETTLED_S_MAX
    while monotonic() < ends_at:
        for address in addresses:
            with open_caller(address) as caller:
                data = REJECTED_BROKER.SerializeToString()
                outcome = caller.outcome(methods.HEARTBEAT.path, data, timeout_s=1.0)
            if outcome == "BROKER_ID_NOT_REGISTERED":
                return address
    return None


def _stranger(
    address: str,
    seed: str,
    truth: grpc_requests.Truth,
    names: ClusterNames,
    ends_at: float,
    report: ControllerHuntReport,
) -> None:
    random = Random(f"{seed}/{address}")
    with open_caller(address) as caller:
        for path, data in _endless(random, truth, names):
            if monotonic() >= ends_at:
                return
            report.outcomes[caller.outcome(path, data, timeout_s=STRANGER_WAIT_S)] += 1


def _endless(
    random: Random, truth: grpc_requests.Truth, names: ClusterNames
) -> Iterator[tuple[str, bytes]]:
    """Yield paths and requests: half of them clients' that are passed on, some of them damaged."""
    rng = FuzzRng(random)
    while True:
        if random.random() < 0.5:
            api_key = random.choice(grpc_requests.FORWARDED_API_KEYS)
            version = random.choice(grpc_requests.versions_of(api_key))
            path = methods.FORWARD.path
            found = list(
                grpc_requests.forward_requests_of(api_key, version, names, rng, bytes_max=BYTES_MAX)
            )
        else:
            method = random.choice(grpc_requests.METHODS)
            path = method.path
            found = [
                *grpc_requests.requests_of(method, truth, rng, bytes_max=BYTES_MAX),
                *grpc_requests.broken_of(method, rng),
            ]
        for data in found:
            yield path, _damaged(data, random) if random.random() < 0.2 else data


def _damaged(data: bytes, random: Random) -> bytes:
    """Return the bytes with some of them changed, left out or doubled."""
    changed = bytearray(data[:BYTES_MAX])
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(3):
            case 0 if at < len(changed):
                changed[at] = random.randrange(256)
            case 1:
                del changed[at : at + random.randrange(1, 9)]
            case _:
                changed[at:at] = changed[at : at + random.randrange(1, 9)]
    return bytes(changed)


def _neighbour(address: str, ends_at: float, report: ControllerHuntReport) -> None:
    """Ask again and again what a controller always answers."""
    rest = threading.Event()
    with open_caller(address) as caller:
        while monotonic() < ends_at and not report.violations:
            try:
                caller.ask(CLUSTER_ID, CLUSTER_ID.request_class())
            except RefusedError as error:
                report.violations.append(f"{address} does not answer its neighbour: {error!r}")
                return
            report.neighbour_count += 1
            rest.wait(NEIGHBOUR_REST_S)
