"""The end-of-process oracle for TLS records: none ends a process, or takes anything from others.

`hunt_listeners` sends the records of `tls_records`, mixtures of them and damaged ones, to the
listeners of processes, each manner on its own connection, whole, chopped, unfinished or with a
reset.  At each listener there are neighbours, on connections that they never close, and newcomers.
Violations: a process ended; a neighbour lost its connection or waited too long; a newcomer was not
served.
Tracebacks in the nodes' logs (`HuntReport.unforeseen`) are defects, too.

A seed makes the same manners for each listener; the last ones before a violation are kept, and
`send` sends each of them again.
"""

import http.client
import select
import socket
import ssl
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic

import trio

from ottla.bench.floods.tls_records import FLOODS, HANDSHAKE_FLOODS, RecordClient, WriteKeys
from tests.jepsen.oracles.end_of_process import (
    ANSWER_S_MAX,
    Deaths,
    HuntPart,
    HuntReport,
    hunt,
)
from tests.jepsen.oracles.tls_hold import READ_BYTES, SEND_BYTES, TlsTarget, exchange_over, hello_of

STRANGERS = 4
"""Connections at a time to each listener."""
STRANGER_S = 1.0
"""Seconds for which a stranger sends, and then listens."""
SHAKE_S_MAX = 10.0
NEWCOMER_REST_S = 0.5
SCRAPE_REST_S = 0.2
RECORDS_OF_TEN_MAX = 3.5
"""The most records of one connection, as a power of ten."""
CHOPPED_BYTES = 2_000
"""Bytes that are sent in tiny pieces, where a delivery is chopped."""
MANNERS_KEPT = 30
RESET = struct.pack("ii", 1, 0)
"""A linger of nothing: closing resets the connection."""

MIXED, SPOILT = "mixed records", "spoilt records"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

RunNeighbour = Callable[[HuntReport], Awaitable[None]]
"""Asks on one connection without an end; notes in the report whatever goes wrong."""


class ByteDelivery(StrEnum):
    """The way of a connection's bytes."""

    WHOLE = "whole"
    CHOPPED = "chopped"
    UNFINISHED = "unfinished"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class RecordManner:
    """Bytes that one connection sends, reproducible from their seed."""

    name: str
    version: ssl.TLSVersion | None
    """None where it is sent in place of a handshake."""
    delivery: ByteDelivery
    record_count: int
    seed: int

    @property
    def kind(self) -> str:
        """Its name, version and delivery: what a hunt must have sent."""
        version = "before" if self.version is None else self.version.name
        return f"{self.name}, {version}, {self.delivery}"


@dataclass(slots=True)
class TlsHuntReport:
    """Figures and findings of a hunt."""

    neighbours: HuntReport
    """Seed, violations and the neighbours' answers."""
    sent: Counter[str] = field(default_factory=Counter)
    """Connections by listener and kind of manner."""
    ended_count: int = 0
    newcomer_count: int = 0
    last: dict[str, deque[RecordManner]] = field(default_factory=dict)
    """The last manners before the first violation, by listener."""

    def __str__(self) -> str:
        found = self.neighbours
        lines = [
            f"seed {found.seed}: {self.sent.total():,} connections of {len(self.sent)} kinds, "
            f"{self.ended_count:,} ended by the server; {found.neighbours_text}, newcomers "
            f"{self.newcomer_count:,}",
            *found.findings,
        ]
        if found.violations:
            for name, manners in self.last.items():
                lines += [f"  to {name}: {manner}" for manner in list(manners)[-10:]]
        return "\n".join(lines)


async def hunt_listeners(
    targets: Sequence[TlsTarget],
    neighbours: Sequence[RunNeighbour],
    deaths: Deaths,
    *,
    seed: int,
    seconds: float,
    folder: Path,
    ends_when_sent: bool = False,
) -> TlsHuntReport:
    """Send records to every listener for some seconds, or until every kind was sent.

    The first violation ends the hunt.  Key logs are written to the folder.
    """
    report = TlsHuntReport(HuntReport(seed))
    parts: list[HuntPart] = [partial(run, report.neighbours) for run in neighbours]
    for target in targets:
        report.last[target.name] = deque(maxlen=MANNERS_KEPT)
        parts.append(partial(_send_all, target, report, folder))
        parts.append(partial(_come_newly, target, report))
    kind_count = len(targets) * len(kinds_of_manners()) if ends_when_sent else None

    def is_enough() -> bool:
        return bool(report.neighbours.violations) or len(report.sent) == kind_count

    await hunt(report.neighbours, parts, deaths, seconds=seconds, is_enough=is_enough)
    return report


def kinds_of_manners() -> list[RecordManner]:
    """Return one manner of each kind: every flood, in each version and delivery."""
    rows: list[tuple[str, ssl.TLSVersion | None]] = [
        (flood.name, version) for flood in FLOODS for version in flood.versions
    ]
    rows += [(name, version) for name in (MIXED, SPOILT) for version in VERSIONS]
    rows += [(name, None) for name in HANDSHAKE_FLOODS]
    return [RecordManner(*row, delivery, 1, 0) for row in rows for delivery in ByteDelivery]


def manners_of(random: Random) -> Iterator[RecordManner]:
    """Yield manners without an end: all kinds in an order of chance, then all of them again."""
    kinds = kinds_of_manners()
    while True:
        random.shuffle(kinds)
        for kind in kinds:
            count = int(10 ** random.uniform(0, RECORDS_OF_TEN_MAX))
            seed = random.getrandbits(32)
            yield RecordManner(kind.name, kind.version, kind.delivery, count, seed)


def send(target: TlsTarget, manner: RecordManner, folder: Path) -> bool:
    """Send one manner on its own connection; return whether the server has ended it.

    Raises OSError where there was no connection, or no handshake.
    """
    random = Random(manner.seed)
    with socket.create_connection(target.address, timeout=SHAKE_S_MAX) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if manner.version is None:
            hello = hello_of(target, folder)
            data = b"".join(HANDSHAKE_FLOODS[manner.name](hello, manner.record_count))
        else:
            context = target.new_context()
            context.minimum_version = context.maximum_version = manner.version
            client = RecordClient(context, target.host, folder)
            client.shake_hands(exchange_over(sock))
            records = _records_of(manner, client.keys, target.request, random)
            data = client.last_handshake_bytes() + b"".join(records)
        is_ended = _deliver(sock, _pieces(data, manner.delivery, random))
        if manner.delivery is ByteDelivery.RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return is_ended


def _records_of(
    manner: RecordManner, keys: WriteKeys, request: bytes, random: Random
) -> Iterator[bytes]:
    if manner.name == MIXED:
        return _mixed(manner, keys, request, random)
    if manner.name == SPOILT:
        return _spoilt(_mixed(manner, keys, request, random), random)
    (flood,) = (one for one in FLOODS if one.name == manner.name)
    return flood.make(keys, request, manner.record_count)


def _mixed(
    manner: RecordManner, keys: WriteKeys, request: bytes, random: Random
) -> Iterator[bytes]:
    """Yield a few records of one flood after the other."""
    floods = [flood for flood in FLOODS if manner.version in flood.versions]
    for _ in range(manner.record_count // 4 + 1):
        yield from random.choice(floods).make(keys, request, random.randrange(1, 8))


def _spoilt(records: Iterator[bytes], random: Random) -> Iterator[bytes]:
    """Yield records, some with a changed byte in header or ciphertext, or cut off."""
    for record in records:
        if random.random() > 0.1:
            yield record
            continue
        at = random.randrange(5 if random.random() < 0.5 else len(record))
        if random.random() < 0.3:
            yield record[:at]
        else:
            yield record[:at] + random.randbytes(1) + record[at + 1 :]


def _pieces(data: bytes, delivery: ByteDelivery, random: Random) -> Iterator[bytes]:
    """Yield the bytes as they are given to the socket."""
    at = 0
    if delivery is ByteDelivery.CHOPPED:
        while at < min(len(data), CHOPPED_BYTES):
            size = random.randrange(1, 30)
            yield data[at : at + size]
            at += size
    end = len(data) - 1 if delivery is ByteDelivery.UNFINISHED else len(data)
    while at < end:
        yield data[at : min(at + SEND_BYTES, end)]
        at += SEND_BYTES


def _deliver(sock: socket.socket, pieces: Iterator[bytes]) -> bool:
    """Send pieces, and read responses; return whether the server has closed the connection."""
    ends_at = monotonic() + STRANGER_S
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)
    rest = memoryview(b"")
    try:
        while monotonic() < ends_at:
            if not rest:
                rest = memoryview(next(pieces, b""))
            if not rest:
                poll.modify(sock, select.POLLIN)
            for _, events in poll.poll(100):
                if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    if not sock.recv(READ_BYTES):
                        return True
                elif rest:
                    rest = rest[sock.send(rest) :]
    except ConnectionError:
        return True
    return False


async def _send_all(target: TlsTarget, report: TlsHuntReport, folder: Path) -> None:
    """Send manners to one listener, some at a time, without an end."""
    last = report.last[target.name]
    slots = trio.Semaphore(STRANGERS)

    async def send_one(manner: RecordManner) -> None:
        try:
            is_ended = await trio.to_thread.run_sync(send, target, manner, folder)
            report.ended_count += is_ended
            report.sent[f"{target.name}: {manner.kind}"] += 1
        except OSError:
            # Whether that is the server's end, others find out.
            await trio.sleep(STRANGER_S)
        finally:
            slots.release()

    async with trio.open_nursery() as nursery:
        for manner in manners_of(Random(f"{report.neighbours.seed} {target.name}")):
            await slots.acquire()
            if not report.neighbours.violations:
                last.append(manner)
            nursery.start_soon(send_one, manner)


async def _come_newly(target: TlsTarget, report: TlsHuntReport) -> None:
    """Connect, ask and leave, without an end."""
    while True:
        try:
            await trio.to_thread.run_sync(target.ask)
        except (OSError, AssertionError) as error:
            sentence = f"a newcomer at {target.name} was not served: {error!r}"
            report.neighbours.add_violation(sentence)
            return
        report.newcomer_count += 1
        await trio.sleep(NEWCOMER_REST_S)


async def scrape(
    address: tuple[str, int], context: ssl.SSLContext, path: str, report: HuntReport
) -> None:
    """Ask a node for its metrics again and again, on one connection."""
    connection = http.client.HTTPSConnection(*address, context=context, timeout=ANSWER_S_MAX)

    def ask() -> None:
        connection.request("GET", path)
        connection.getresponse().read()

    try:
        await trio.to_thread.run_sync(connection.connect)
        kept = connection.sock
        while True:
            began_s = monotonic()
            await trio.to_thread.run_sync(ask)
            if connection.sock is not kept:
                raise ConnectionResetError("the server asked to close the connection")
            report.add_answers(1, monotonic() - began_s)
            await trio.sleep(SCRAPE_REST_S)
    except (OSError, http.client.HTTPException) as error:
        report.add_violation(f"a neighbour at {path} was lost: {error!r}")
    finally:
        connection.close()
