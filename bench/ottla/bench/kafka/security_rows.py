"""Benchmarks of `ottla bench security`. Each is a row of the report. For each benchmark, the module
contains its load on one server and the preparation of this load."""

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.bench.kafka.beside_kafka import wait_until_led
from ottla.bench.kafka.security_servers import (
    HOST,
    PASSWORD,
    PLAINTEXT,
    TLS12,
    TLS13,
    USER,
    USERS,
    SecurityServer,
)
from ottla.bench.load import Load, consume, library, make_topic, produce
from ottla.bench.processes import cpu_seconds
from ottla.bench.requests import (
    FETCH_VERSION,
    METADATA_VERSION,
    PRODUCE_VERSION,
    SmallRequest,
    dial,
    exchanged,
    frame_of,
    repeat,
    small_request,
    topic_id_of,
)
from ottla.bench.result import GB, Result
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.security.sasl import PLAIN
from ottla.wire import codec, headers
from ottla.wire.apis import response_class
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest

PRODUCED, FETCHED, SMALL = "security-produce", "security-fetch", "security-small"
RECORD_BYTES = 1_000
FETCH_BATCH_BYTES = 1 << 20
CLIENTS_OF_HANDSHAKES = 2
"""Number of client threads that open TLS connections one after another. Two are enough to keep a
server busy."""
ENTRIES_AT_ONCE = 1_000
ALLOWED_WITHIN_S = 20.0
LOOK_AGAIN_S = 0.1
VERSIONS = {"produce": PRODUCE_VERSION, "fetch": FETCH_VERSION, "metadata": METADATA_VERSION}
TLS_OF = {TLS13: ssl.TLSVersion.TLSv1_3, TLS12: ssl.TLSVersion.TLSv1_2}

OFF, ON = "off", "on"
TURNS = 20
"""Number of times that a benchmark with ACLs switches between the servers without and with an
authorizer."""

IS_HIGHER_BETTER = {
    "mb_per_second": True,
    "broker_cpu_s_per_gb": False,
    "per_second": True,
    "broker_cpu_us_each": False,
    "commit_p50_ms": False,
    "commit_p99_ms": False,
    **{f"{state}_per_second": True for state in (OFF, ON)},
    **{f"{state}_cpu_us_each": False for state in (OFF, ON)},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityWork:
    """The load of one round of the security benchmark, the same for all servers."""

    records: int
    """Number of records of 1 KB that each benchmark of TLS produces or fetches."""
    handshake_s: float
    requests: int
    connections: int
    in_flight: int
    entries: int
    """Number of ACLs that are created in addition to the ACL of the user's topic."""


SecurityRow = Callable[[SecurityServer, SecurityWork, Path], Mapping[str, float]]
"""Function that runs one benchmark of the security comparison on a server. Its last argument is the
path of the CA file."""


def prepare_tls(server: SecurityServer, work: SecurityWork) -> None:
    """Create the topics for the TLS benchmarks, and produce the records that the fetch benchmarks
    read."""
    for topic in (PRODUCED, FETCHED):
        load = _load(server, work, PLAINTEXT, topic)
        make_topic(load)
        wait_until_led(load)
    produce(load, _no_progress)


def prepare_entries(server: SecurityServer, work: SecurityWork, *, has_authorizer: bool) -> None:
    """Create the ACLs, and the topic to which the small requests are sent. Then wait until the
    server allows the user to use the topic.

    Raises RefusedError if the user is still refused after a time limit.
    """
    load = _load(server, work, PLAINTEXT, SMALL)
    make_topic(load)
    wait_until_led(load)
    if has_authorizer:
        _make_entries(server, work.entries)
    topic_id = topic_id_of(server.address(PLAINTEXT), SMALL)
    ends_at = time.monotonic() + ALLOWED_WITHIN_S
    for kind in VERSIONS:
        while code := _refusal(server, kind, topic_id):
            if time.monotonic() > ends_at:
                raise RefusedError(ErrorCode(code), f"{kind} of {USER} at {server.addresses}")
            time.sleep(LOOK_AGAIN_S)


def _make_entries(server: SecurityServer, count: int) -> None:
    """Create ACLs that allow the logged-in user all operations on the measured topic, and on
    `count` other topics."""
    module = library("confluent_kafka.admin")
    admin = module.AdminClient({"bootstrap.servers": server.addresses[PLAINTEXT], "log_level": 3})
    entries = [
        module.AclBinding(
            module.ResourceType.TOPIC,
            name,
            module.ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            module.AclOperation.ALL,
            module.AclPermissionType.ALLOW,
        )
        for name in (SMALL, *(f"other-{number}" for number in range(count)))
    ]
    for at in range(0, len(entries), ENTRIES_AT_ONCE):
        for future in admin.create_acls(entries[at : at + ENTRIES_AT_ONCE]).values():
            future.result(timeout=60)


def _refusal(server: SecurityServer, kind: str, topic_id: UUID) -> int:
    """Send a small request as the logged-in user, and return the error code in the response. It is
    0 if the request is allowed."""
    small = _small(kind, topic_id)
    with dial(server.address(USERS)) as client:
        for frame in small.before:
            exchanged(client, frame)
        answer = exchanged(client, small.frame)
    key = int.from_bytes(small.frame[4:6], "big")
    _, at = headers.decode_response_header(key, VERSIONS[kind], answer)
    found: Any = codec.decode(response_class(key), VERSIONS[kind], memoryview(answer)[at:])
    if kind == "produce":
        return int(found.responses[0].partition_responses[0].error_code)
    if kind == "fetch":
        return int(found.error_code or found.responses[0].partitions[0].error_code)
    return int(found.topics[0].error_code)


def _small(kind: str, topic_id: UUID) -> SmallRequest:
    """Return a small request of one kind (produce, fetch or metadata), to be sent after the user's
    login."""
    token = f"\0{USER}\0{PASSWORD}".encode()
    login = (
        frame_of(SaslHandshakeRequest(mechanism=PLAIN), 1),
        frame_of(SaslAuthenticateRequest(auth_bytes=token), 2),
    )
    return small_request(kind, SMALL, topic_id)._replace(before=login)


def _load(server: SecurityServer, work: SecurityWork, listener: str, topic: str) -> Load:
    return Load(
        bootstrap=server.addresses[listener],
        topic=topic,
        count=work.records,
        record_bytes=RECORD_BYTES,
        replication_factor=1,
    )


def _no_progress(done: int) -> None:
    pass


def _bytes_row(
    run: Callable[..., Result],
    topic: str,
    listener: str,
    server: SecurityServer,
    work: SecurityWork,
    ca: Path,
) -> dict[str, float]:
    load = _load(server, work, listener, topic)
    if run is consume:
        load = replace(load, batch_bytes=FETCH_BATCH_BYTES)
    if listener != PLAINTEXT:
        load = replace(load, login={"security.protocol": "SSL", "ssl.ca.location": str(ca)})
    before = cpu_seconds(server.pids)
    result = run(load, _no_progress)
    used = cpu_seconds(server.pids) - before
    return {
        "mb_per_second": result.figures()["mb_per_second"],
        "broker_cpu_s_per_gb": used * GB / (work.records * RECORD_BYTES),
    }


def _handshakes_row(
    listener: str, server: SecurityServer, work: SecurityWork, ca: Path
) -> dict[str, float]:
    """Open connections to a listener, each with its own TLS handshake, and close them. Returns the
    handshakes per second, and the broker's CPU microseconds for each."""
    context = ssl.create_default_context(cafile=str(ca))
    context.minimum_version = context.maximum_version = TLS_OF[listener]
    address = server.address(listener)
    began = time.perf_counter()

    def shake_hands() -> int:
        count = 0
        while time.perf_counter() - began < work.handshake_s:
            with dial(address) as sock, context.wrap_socket(sock, server_hostname=HOST) as stream:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                count += 1
        return count

    before = cpu_seconds(server.pids)
    with ThreadPoolExecutor(CLIENTS_OF_HANDSHAKES) as pool:
        futures = [pool.submit(shake_hands) for _ in range(CLIENTS_OF_HANDSHAKES)]
        count = sum(future.result() for future in futures)
    seconds = time.perf_counter() - began
    used = cpu_seconds(server.pids) - before
    return {"per_second": round(count / seconds), "broker_cpu_us_each": 1e6 * used / count}


def measure_entries(
    kind: str, without: SecurityServer, with_entries: SecurityServer, work: SecurityWork
) -> dict[str, float]:
    """Send small requests of a user alternately to a server without an authorizer and to a server
    with one. Returns, for each server, the requests per second and the CPU time per request in µs.

    The servers alternate quickly, so that other load of the machine affects both equally.
    """
    servers = {OFF: without, ON: with_entries}
    smalls = {
        state: _small(kind, topic_id_of(server.address(PLAINTEXT), SMALL))
        for state, server in servers.items()
    }
    seconds, used = dict.fromkeys(servers, 0.0), dict.fromkeys(servers, 0.0)
    count = max(1, work.requests // TURNS)
    for number in range(TURNS):
        for state in (OFF, ON) if number % 2 == 0 else (ON, OFF):
            server = servers[state]
            before = cpu_seconds(server.pids)
            result = repeat(
                server.address(USERS),
                kind,
                [smalls[state]] * work.connections,
                count=count,
                in_flight=work.in_flight,
                progress=_no_progress,
            )
            used[state] += cpu_seconds(server.pids) - before
            seconds[state] += result.seconds
    done = count * TURNS
    return {
        **{f"{state}_per_second": round(done / seconds[state]) for state in servers},
        **{f"{state}_cpu_us_each": 1e6 * used[state] / done for state in servers},
    }


LISTENERS = {"plain": PLAINTEXT, "tls13": TLS13, "tls12": TLS12}

TLS_ROWS: dict[str, SecurityRow] = {
    **{
        f"{what}-{how}": partial(_bytes_row, run, topic, listener)
        for what, run, topic in (("produce", produce, PRODUCED), ("fetch", consume, FETCHED))
        for how, listener in LISTENERS.items()
    },
    "handshakes-tls13": partial(_handshakes_row, TLS13),
    "handshakes-tls12": partial(_handshakes_row, TLS12),
}
"""Functions that run the benchmarks with and without TLS on servers without an authorizer, by name
of the benchmark."""

ENTRIES_ROWS = {f"{kind}-acls": kind for kind in VERSIONS}
"""Kind of small request by name of the benchmark. These benchmarks send requests of a logged-in
user to a server with an authorizer and to a server without one."""
