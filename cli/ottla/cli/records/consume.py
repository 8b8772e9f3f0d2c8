"""`ottla consume`: print records, with kcat's habits."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio

from ottla.cli.common import add_cluster_arguments, bootstrap_of, counted, run_async
from ottla.cli.terminal import note
from ottla.cli.topics.offsets import offsets_at
from ottla.client.fetch.aborted_producers import AbortedProducers
from ottla.client.fetch.offset_lookup import ISOLATION
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.model.errors import ConfigError, ErrorCode, row_of
from ottla.model.ids import TopicPartition
from ottla.model.visible_text import visible, visible_json
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.batch import TimestampType, batches, check_crc
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.offset_timestamps import EARLIEST, LATEST
from ottla.wire.records import Record, scan

FETCH_BY_NAME_VERSION = FETCH_TOPIC_IDS_FROM - 1
PARTITION_BYTES_MAX = 1 << 20
WAIT_MS_MAX = 500
ATTEMPTS = 50
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\"}


@dataclass(slots=True)
class ReadPosition:
    """Where reading of one partition stands and where it stops."""

    partition: int
    offset: int
    end_offset: int | None
    leader: int = -1
    """Who answered last."""


class Read(NamedTuple):
    """A record, and what its timestamp says."""

    record: Record
    timestamp_type: TimestampType


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of 'ottla consume'."""
    add_cluster_arguments(parser)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-p", "--partition", type=int, help="read this partition only")
    parser.add_argument(
        "-o",
        "--offset",
        default="beginning",
        metavar="OFFSET",
        help="beginning, end, N, -N (from the end), s@MS (from that time), e@MS (until then)",
    )
    parser.add_argument("-c", "--count", type=int, help="stop after this many records")
    parser.add_argument("-e", "--exit-at-end", action="store_true", help="stop at the end")
    parser.add_argument("-K", "--key-delimiter", metavar="DELIMITER", help="print keys too")
    parser.add_argument(
        "-f",
        "--format-string",
        metavar="FORMAT",
        help=r"%%t topic %%p partition %%o offset %%T time %%k key %%s value %%h headers "
        r"%%K %%S lengths; \n \t",
    )
    parser.add_argument(
        "--isolation-level",
        choices=tuple(ISOLATION),
        default="read_committed",
        help="which records of transactions to read (default: %(default)s, as kcat)",
    )
    parser.add_argument("-J", "--json", action="store_true", help="one JSON object a record")


def run(arguments: argparse.Namespace) -> int:
    """Read until told to stop: the count, the end, or Ctrl-C."""
    start, stop = parse_offset(arguments.offset)

    async def body() -> int:
        async with open_cluster(bootstrap_of(arguments)) as cluster:
            partitions = await cluster.partitions_of(arguments.topic)
            if arguments.partition is not None:
                if arguments.partition not in partitions:
                    raise ConfigError(
                        "--partition",
                        f"is {arguments.partition}; the topic has 0 to {partitions[-1]}",
                    )
                partitions = [arguments.partition]
            positions = [
                await _position(cluster, arguments, partition, start, stop)
                for partition in partitions
            ]
            await _read(cluster, arguments, positions)
            return 0

    return run_async(body)


def parse_offset(text: str) -> tuple[str, int | None]:
    """Return where to start and the time to stop at (in ms), as kcat writes them."""
    start, stop = "beginning", None
    for part in text.split(","):
        if part.startswith("e@") and part[2:].isdecimal():
            stop = int(part[2:])
        elif re.fullmatch(r"beginning|end|-?\d+|s@\d+", part):
            start = part
        else:
            raise ConfigError(
                "--offset", f"is {text!r}; it must be beginning, end, N, -N, s@MS or e@MS"
            )
    return start, stop


async def _position(
    cluster: Cluster,
    arguments: argparse.Namespace,
    partition: int,
    start: str,
    stop_ms: int | None,
) -> ReadPosition:
    at = TopicPartition(arguments.topic, partition)
    level = arguments.isolation_level
    end = None
    if arguments.exit_at_end or stop_ms is not None or start.startswith("-"):
        end = await _offset_at(cluster, at, LATEST, level)
    if start == "beginning":
        offset = await _offset_at(cluster, at, EARLIEST, level)
    elif start == "end":
        offset = await _offset_at(cluster, at, LATEST, level)
    elif start.startswith("s@"):
        found = await _offset_at(cluster, at, int(start[2:]), level)
        offset = found if found >= 0 else await _offset_at(cluster, at, LATEST, level)
    elif start.startswith("-"):
        assert end is not None
        offset = max(await _offset_at(cluster, at, EARLIEST, level), end + int(start))
    else:
        offset = int(start)
    if stop_ms is not None:
        found = await _offset_at(cluster, at, stop_ms, level)
        end = found if found >= 0 else end
    elif not arguments.exit_at_end:
        end = None
    return ReadPosition(partition, offset, end)


async def _offset_at(cluster: Cluster, at: TopicPartition, timestamp: int, level: str) -> int:
    return (await offsets_at(cluster, [at], timestamp, isolation_level=level))[at]


async def _read(
    cluster: Cluster, arguments: argparse.Namespace, positions: list[ReadPosition]
) -> None:
    left = arguments.count if arguments.count is not None else sys.maxsize
    printer = Printer(arguments)
    failures = 0
    while left > 0:
        open_ = [p for p in positions if p.end_offset is None or p.offset < p.end_offset]
        if not open_:
            break
        found, stale = await _fetch(cluster, arguments.topic, open_, arguments.isolation_level)
        failures = failures + 1 if stale else 0
        if failures > ATTEMPTS:
            raise_for(stale)
        if stale:
            cluster.forget_leaders()
            await trio.sleep(0.1)
        for position, records in found:
            for read in wanted_of(records, position):
                if left == 0:
                    break
                printer.show(position, read)
                position.offset = read.record.offset + 1
                left -= 1
        sys.stdout.flush()
    note(f"{counted(printer.count, 'record')} read from {arguments.topic}")


async def _fetch(
    cluster: Cluster, topic: str, positions: list[ReadPosition], level: str
) -> tuple[list[tuple[ReadPosition, list[Read]]], int]:
    """Fetch once from each leader in turn; return the records and a retriable error, if any."""
    by_leader: dict[Any, list[ReadPosition]] = {}
    for position in positions:
        leader = await cluster.leader_of(TopicPartition(topic, position.partition))
        by_leader.setdefault(leader, []).append(position)
    found: list[tuple[ReadPosition, list[Read]]] = []
    stale = 0
    for leader, wanted in by_leader.items():
        request = FetchRequest(
            max_wait_ms=WAIT_MS_MAX if len(by_leader) == 1 else 0,
            min_bytes=1,
            max_bytes=50 << 20,
            session_epoch=-1,
            isolation_level=ISOLATION[level],
            topics=[FetchTopic(topic=topic, partitions=[_partition(p) for p in wanted])],
        )
        answer = await cluster.request(
            request, FetchResponse, node=leader, version=FETCH_BY_NAME_VERSION
        )
        by_number = {position.partition: position for position in wanted}
        for part in answer.responses[0].partitions if answer.responses else []:
            position = by_number[part.partition_index]
            if part.error_code != ErrorCode.NONE:
                if not row_of(part.error_code).is_retriable:
                    raise_for(part.error_code)
                stale = part.error_code
                continue
            position.leader = leader
            aborted = [
                (one.producer_id, one.first_offset) for one in part.aborted_transactions or ()
            ]
            found.append((position, records_of(part.records, position, aborted)))
    return found, stale


def _partition(position: ReadPosition) -> FetchPartition:
    return FetchPartition(
        partition=position.partition,
        fetch_offset=position.offset,
        partition_max_bytes=PARTITION_BYTES_MAX,
    )


def records_of(
    data: Any, position: ReadPosition, aborted: Iterable[tuple[int, int]] = ()
) -> list[Read]:
    """Return the records of a fetch, which may end during a batch: the next fetch has it whole.

    Those of `aborted` transactions, (producer id, first offset) each, are left out.
    """
    if not data:
        return []
    view = memoryview(data)
    found: list[Read] = []
    end_offset = position.offset
    producers = AbortedProducers(aborted)
    for at, header in batches(view, is_partial_end_allowed=True):
        if not check_crc(view, at, header):
            raise_for(ErrorCode.CORRUPT_MESSAGE)
        if header.is_control:
            producers.on_control(view, at, header)
        elif not producers.is_aborted(header):
            found += [Read(record, header.timestamp_type) for record in scan(view, at, header)]
        end_offset = header.end_offset
    if not found or found[-1].record.offset < position.offset:
        # Nothing but markers, aborted records, or such as compaction took away: step over them.
        position.offset = max(position.offset, end_offset)
    return found


def wanted_of(records: Iterable[Read], position: ReadPosition) -> Iterator[Read]:
    """Yield the records from the position on; behind the last that is wanted, move to the end."""
    for read in records:
        if position.end_offset is not None and read.record.offset >= position.end_offset:
            # Compaction may have taken all that lay before the end: no record leads there.
            position.offset = position.end_offset
            return
        if read.record.offset >= position.offset:
            yield read


class Printer:
    """Prints records in the form that was asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.count = 0
        self._topic: str = arguments.topic
        self._is_json: bool = arguments.json
        self._is_seen = sys.stdout.isatty()
        """Whether a terminal shows what is printed: there a record's bytes steer nothing."""
        text = arguments.format_string
        if text is None:
            delimiter = arguments.key_delimiter
            text = "%s\\n" if delimiter is None else f"%k{delimiter}%s\\n"
        self._tokens: list[str] = re.findall(r"%[a-zA-Z%]|\\[ntr\\]|[^%\\]+|.", text)

    def show(self, position: ReadPosition, read: Read) -> None:
        """Print one record."""
        self.count += 1
        out = sys.stdout.buffer
        if self._is_json:
            out.write(self.json(position, read).encode() + b"\n")
            return
        for token in self._tokens:
            part = self._part(token, position.partition, read.record)
            if self._is_seen:
                part = visible(part.decode(errors="backslashreplace"), keeps_layout=True).encode()
            out.write(part)

    def _part(self, token: str, partition: int, record: Record) -> bytes:
        match token:
            case "%s":
                return record.value or b""
            case "%k":
                return record.key or b""
            case "%S" | "%K":
                content = record.value if token == "%S" else record.key
                return b"-1" if content is None else b"%d" % len(content)
            case "%h":
                return b",".join(
                    name.encode() + b"=" + (value if value is not None else b"NULL")
                    for name, value in record.headers
                )
            case "%t":
                return self._topic.encode()
            case "%p" | "%o" | "%T":
                numbers = {"%p": partition, "%o": record.offset, "%T": record.timestamp_ms}
                return b"%d" % numbers[token]
            case "%%":
                return b"%"
            case _:
                return ESCAPES.get(token, token).encode()

    def json(self, position: ReadPosition, read: Read) -> str:
        """Return a record as kcat's JSON: no spaces, and headers only where there are any."""
        record = read.record
        is_create_time = read.timestamp_type is TimestampType.CREATE_TIME
        fields: dict[str, Any] = {
            "topic": self._topic,
            "partition": position.partition,
            "offset": record.offset,
            "tstype": "create" if is_create_time else "logappend",
            "ts": record.timestamp_ms,
            "broker": position.leader,
        }
        if record.headers:
            fields["headers"] = [
                text for name, value in record.headers for text in (name, _text(value))
            ]
        fields["key"] = _text(record.key)
        fields["payload"] = _text(record.value)
        return visible_json(fields, separators=(",", ":"))


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")
