"""The end-of-process oracle for controllers: no gRPC request may end one, or make it unavailable.

`hunt_controllers` sends the requests of `grpc_requests`, and random mutations of them, to
controllers that are processes of their own, some at a time, while a neighbour of each sends the
first request of every node, which must be answered. Afterwards the controllers must have a leader
that decides.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from time import monotonic

import trio

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.errors import RefusedError
from ottla.proto import controller_pb2 as pb
from ottla.rpc import controller_methods as methods
from ottla.rpc.cluster_id import CLUSTER_ID
from tests.jepsen.oracles import grpc_requests
from tests.jepsen.oracles.end_of_process import Deaths, HuntPart, HuntReport, hunt
from tests.jepsen.oracles.grpc_target import fill, open_caller
from tests.jepsen.oracles.kafka_values import ClusterNames

LARGE_TOPIC_PARTITIONS = 100
BYTES_MAX = 8 << 10
STRANGERS = 4
STRANGER_WAIT_S = 0.5
SETTLED_S_MAX = 60.0
NEIGHBOUR_REST_S = 0.2
REJECTED_BROKER = pb.HeartbeatRequest(broker_id=-7)
"""A heartbeat that only the active controller refuses for its content."""


@dataclass(slots=True)
class ControllerHuntReport(HuntReport):
    """Requests of a hunt for controllers, and the violations it found."""

    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.outcomes.total():,} requests, {dict(self.outcomes)}; "
        return "\n".join([head + self.neighbours_text, *self.findings])


async def hunt_controllers(
    addresses: Sequence[str],
    *,
    seed: int,
    seconds: float,
    deaths: Deaths,
    request_count: int | None = None,
) -> ControllerHuntReport:
    """Send requests to controllers for some seconds; return counts and violations.

    With a `request_count` it ends earlier: at this count, once one of them was answered.
    """
    report = ControllerHuntReport(seed)
    leader = await trio.to_thread.run_sync(wait_for_leader, addresses)
    if leader is None:
        report.violations.append("no controller leads before the first request")
        return report
    fill_it = partial(fill, large_topic_partitions=LARGE_TOPIC_PARTITIONS)
    with open_caller(leader) as caller:
        truth, names = await trio.to_thread.run_sync(fill_it, caller)
    parts: list[HuntPart] = [
        partial(_stranger, address, f"{seed}/{at}", truth, names, report)
        for address in addresses
        for at in range(STRANGERS)
    ]
    parts += [partial(ask_cluster_id, address, report) for address in addresses]

    def is_enough() -> bool:
        is_sent = request_count is not None and report.outcomes.total() >= request_count
        return bool(report.violations) or (is_sent and report.outcomes["answered"] > 0)

    await hunt(report, parts, deaths, seconds=seconds, is_enough=is_enough)
    if not report.violations and await trio.to_thread.run_sync(wait_for_leader, addresses) is None:
        report.add_violation(f"no controller leads {SETTLED_S_MAX} s after the last request")
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


async def _stranger(
    address: str,
    seed: str,
    truth: grpc_requests.Truth,
    names: ClusterNames,
    report: ControllerHuntReport,
) -> None:
    random = Random(f"{seed}/{address}")
    with open_caller(address) as caller:
        send = partial(caller.outcome, timeout_s=STRANGER_WAIT_S)
        for path, data in _endless(random, truth, names):
            report.outcomes[await trio.to_thread.run_sync(send, path, data)] += 1


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


async def ask_cluster_id(address: str, report: HuntReport) -> None:
    """Repeat a request that a controller always answers."""
    with open_caller(address) as caller:
        while True:
            began_s = monotonic()
            try:
                await trio.to_thread.run_sync(caller.ask, CLUSTER_ID, CLUSTER_ID.request_class())
            except RefusedError as error:
                report.add_violation(f"{address} does not answer its neighbour: {error!r}")
                return
            report.add_answers(1, monotonic() - began_s)
            await trio.sleep(NEIGHBOUR_REST_S)
