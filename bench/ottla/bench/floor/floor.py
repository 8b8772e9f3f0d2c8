"""`ottla bench floor`: CPU time and rate of a broker, compared with the smallest program that makes
the same system calls on the same bytes (the floor).

The program decodes only the length of a request, and answers it with the bytes of the broker's own
response. Its CPU time is therefore the kernel's, for the sockets and the file. Broker and program
serve the same load in turns. A first round warms both up, and is not counted.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ottla.bench.floor.floor_program import (
    FloorAnswer,
    build_floor,
    has_compiler,
    open_floor,
)
from ottla.bench.kafka.beside_kafka import EQUAL_SETTINGS, OTTLA_SETTINGS, wait_until_led
from ottla.bench.kafka.comparison import Measured, Spread, spread_of
from ottla.bench.kafka.turns import MeasurementRounds, load_average
from ottla.bench.load import Load, Progress, make_topic
from ottla.bench.local_cluster import RunningCluster, open_local_cluster
from ottla.bench.processes import cpu_seconds
from ottla.bench.requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RECORD_BYTES,
    SmallRequest,
    answer_to,
    frame_of,
    repeat,
    topic_id_of,
)
from ottla.bench.tables import table_of
from ottla.model.compiled import installed_form
from ottla.model.limits import FRAME_LENGTH_BYTES, MIB
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.batch import CRC_AT
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

OURS, FLOOR = "ottla", "floor"
SERVERS = (OURS, FLOOR)
LARGE_RECORD_BYTES = 1_000
LARGE_RECORDS = 128
TIMEOUT_S = 3_600.0

RATE, CPU = "requests/s", "CPU µs each"


class FloorRow(NamedTuple):
    """One row of the table: the kind and size of the requests, the number of connections, and the
    number of requests in flight on each."""

    kind: str
    """Kind of the requests: "produce" or "fetch"."""
    is_large: bool
    connections: int
    in_flight: int
    request_count: int
    """Number of requests in one round."""

    @property
    def title(self) -> str:
        """Title of this row in the table."""
        size = "128 KiB" if self.is_large else f"{RECORD_BYTES} B"
        return f"{self.kind.capitalize()}, {size}, {self.connections} × {self.in_flight}"

    @property
    def batch(self) -> bytes:
        """Record batch that the requests of this row write or read."""
        size, count = (LARGE_RECORD_BYTES, LARGE_RECORDS) if self.is_large else (RECORD_BYTES, 1)
        now_ms = time.time_ns() // 1_000_000
        return build_batch([RecordToBuild(now_ms, None, b"x" * size)] * count)


ROWS = (
    FloorRow("produce", False, 10, 1, 40_000),
    FloorRow("produce", False, 50, 5, 80_000),
    FloorRow("produce", True, 1, 1, 1_500),
    FloorRow("fetch", False, 10, 1, 60_000),
    FloorRow("fetch", False, 50, 5, 120_000),
    FloorRow("fetch", True, 1, 1, 6_000),
)


class FloorFigure(NamedTuple):
    """One measured value of a row (requests per second, or µs of CPU time per request), for the
    broker and for the program."""

    row: str
    figure: str
    ours: Spread
    floor: Spread
    times_floor: float
    """Factor by which the broker is slower than the floor program: the quotient of their CPU times,
    or of their rates."""

    def figures(self) -> dict[str, Any]:
        """Return the measured value as a JSON object."""
        return {
            "row": self.row,
            "figure": self.figure,
            OURS: self.ours._asdict(),
            FLOOR: self.floor._asdict(),
            "times_floor": self.times_floor,
        }


class FloorReport(NamedTuple):
    """Measured values of all rows, and the conditions of the run."""

    rounds: int
    form: str
    """Form of the broker's code: interpreted or compiled."""
    load_averages: tuple[float, float]
    """Load averages of the machine over one minute, before the first round and after the last."""
    found: list[FloorFigure]

    def figures(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "what": "floor",
            "rounds": self.rounds,
            "form": self.form,
            "load_averages": self.load_averages,
            "rows": [each.figures() for each in self.found],
        }


class FloorWork(NamedTuple):
    """Request of a row, and the response of the C program to the request."""

    request: SmallRequest
    answer: FloorAnswer


class FloorServer(NamedTuple):
    """One of the two servers compared in a row of the report: its address, its process ids, and the
    request that the load sends."""

    address: tuple[str, int]
    pids: Sequence[int]
    request: SmallRequest


def run_floor(
    *, rounds: int, progress: Progress, rows: Sequence[FloorRow] = ROWS, scale: float = 1.0
) -> FloorReport:
    """Measure a broker and a minimal C program alternately, for each row of the report. `scale`
    multiplies the numbers of requests.

    Raises RefusedError if the machine has no C compiler or if the broker does not start.
    """
    turns = MeasurementRounds(TIMEOUT_S, progress)
    by_title = {row.title: row for row in rows}
    settings = {**EQUAL_SETTINGS, **OTTLA_SETTINGS}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-floor-")))
        program = build_floor(directory)
        cluster = stack.enter_context(
            open_local_cluster(controllers=1, brokers=1, restarts=False, **settings)
        )
        servers: dict[tuple[str, str], FloorServer] = {}
        for number, row in enumerate(rows):
            opened = _servers(row, cluster, program, directory / str(number))
            for name, server in stack.enter_context(opened).items():
                servers[row.title, name] = server

        def measure(title: str, name: str) -> Mapping[str, float]:
            return _measured(by_title[title], servers[title, name], scale)

        turns.take(list(by_title), 1, measure, servers=SERVERS)
        before = load_average()
        taken = turns.take(list(by_title), rounds, measure, servers=SERVERS)
        after = load_average()
    turns.require(taken, "lower --rounds")
    return FloorReport(len(taken), installed_form(), (before, after), compared(taken))


@contextmanager
def _servers(
    row: FloorRow, cluster: RunningCluster, program: Path, directory: Path
) -> Iterator[dict[str, FloorServer]]:
    """Create the topic for a row, and start the C program with the broker's own response to the
    row's request. Yields the broker and the program by their names."""
    address = parse_bootstrap(cluster.bootstrap)[0]
    topic = f"floor-{row.kind}-{directory.name}"
    load = Load(bootstrap=cluster.bootstrap, topic=topic, partitions=1, replication_factor=1)
    make_topic(load)
    wait_until_led(load)
    work = floor_work(row, address, topic)
    with open_floor(program, directory, work.answer) as floor:
        yield {
            OURS: FloorServer(address, cluster.all_pids, work.request),
            FLOOR: FloorServer(floor.address, [floor.pid], work.request),
        }


@contextmanager
def open_floors(
    rows: Mapping[str, FloorRow], cluster: RunningCluster
) -> Iterator[dict[str, FloorServer]]:
    """Run one C program for each row, and yield the programs by row name. Each program responds
    with the bytes that a broker of the cluster sent for the row's request.

    Yields no program if the machine has no C compiler.
    """
    with ExitStack() as stack:
        servers: dict[str, FloorServer] = {}
        if rows and has_compiler():
            path = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-floor-"))
            program = build_floor(Path(path))
            for number, (name, row) in enumerate(rows.items()):
                opened = _servers(row, cluster, program, Path(path, str(number)))
                servers[name] = stack.enter_context(opened)[FLOOR]
        yield servers


def floor_work(row: FloorRow, address: tuple[str, int], topic: str) -> FloorWork:
    """Send the request of a row to a broker once. Returns the request, and the broker's response,
    which the C program will repeat."""
    batch = row.batch
    produce = frame_of(
        ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
                )
            ],
        ),
        PRODUCE_VERSION,
    )
    answer = answer_to(address, produce)
    asked, records_at = produce, produce.index(batch)
    if row.kind == "fetch":
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
        topic_id = topic_id_of(address, topic)
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=MIB,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
        )
        asked = frame_of(fetch, FETCH_VERSION)
        answer = answer_to(address, asked)
        # The broker has written offset and leader epoch, which are before the CRC.
        records_at = FRAME_LENGTH_BYTES + answer.index(batch[CRC_AT:]) - CRC_AT
        batch = answer[records_at - FRAME_LENGTH_BYTES :][: len(batch)]
    framed = len(answer).to_bytes(FRAME_LENGTH_BYTES, "big") + answer
    return FloorWork(
        SmallRequest(asked, len(batch)), FloorAnswer(row.kind, framed, records_at, batch)
    )


def _measured(row: FloorRow, server: FloorServer, scale: float) -> dict[str, float]:
    """Send the requests of a row to one server. Returns its requests per second, and its CPU time
    per request in µs."""
    count = max(1, round(row.request_count * scale))
    rate, cpu_us = floor_figures(row, server, count)
    return {RATE: rate, CPU: cpu_us}


def floor_figures(row: FloorRow, server: FloorServer, count: int) -> tuple[float, float]:
    """Send `count` requests of a row to one server. Returns its requests per second, and its CPU
    time per request in µs."""
    before = cpu_seconds(server.pids)
    result = repeat(
        server.address,
        row.title,
        [server.request] * row.connections,
        count=count,
        in_flight=row.in_flight,
        progress=lambda done: None,
    )
    cpu_s = cpu_seconds(server.pids) - before
    return count / result.seconds, 1e6 * cpu_s / count


def compared(rounds: Sequence[Measured]) -> list[FloorFigure]:
    """Return the measured values of all rows over all rounds, in the order of the rows in the first
    round."""
    found = []
    for row in dict.fromkeys(row for row, _ in rounds[0]):
        for figure in (RATE, CPU):
            ours, floor = (
                spread_of([each[row, name][figure] for each in rounds]) for name in SERVERS
            )
            cost, least = (floor, ours) if figure == RATE else (ours, floor)
            times = cost.median / least.median if least.median else 0.0
            found.append(FloorFigure(row, figure, ours, floor, round(times, 2)))
    return found


def as_table(report: FloorReport) -> str:
    """Return the report as a text table, and a last line with the conditions of the run."""
    rows = [
        (each.row, each.figure, _shown(each.ours), _shown(each.floor), f"{each.times_floor:.2f}")
        for each in report.found
    ]
    before, after = report.load_averages
    rounds = "1 round" if report.rounds == 1 else f"{report.rounds} rounds"
    last = f"{report.form}; {rounds}; load of the machine {before:g} before, {after:g} after"
    return f"{table_of(('ROW', 'FIGURE', 'OTTLA', 'FLOOR', '× FLOOR'), rows)}\n\n{last}"


def _shown(spread: Spread) -> str:
    def text(value: float) -> str:
        return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"

    return f"{text(spread.median)} ({text(spread.lowest)}–{text(spread.highest)})"
