"""`ottla consume`: prints records, with the formats and options of kcat."""

import argparse
import re
import sys

import trio

from ottla.cli.common import CONNECTION, bootstrap_of, counted, run_async
from ottla.cli.options import Declared, option
from ottla.cli.records.record_printer import Printer
from ottla.cli.records.wanted_topics import WantedTopics, topics_of
from ottla.cli.terminal import note
from ottla.client.fetch.offset_lookup import ISOLATION
from ottla.client.fetch.position_reads import ReadPosition, fetch_once, wanted_of
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.insight.facts.offsets import offsets_at
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST, LATEST

ATTEMPTS = 50


OPTIONS: tuple[Declared, ...] = (
    *CONNECTION,
    option(
        "topics TOPIC ...",
        "topic; one that begins with ^ is a regular expression of the beginnings of names",
    ),
    option("--regex", "each TOPIC is a regular expression of whole names"),
    option(
        "-G --group GROUP",
        "read as a member of this group, and commit what was printed (default: no group)",
    ),
    option(
        "--share GROUP",
        "take records as a member of this share group (a queue), and accept what was printed",
    ),
    option("-p --partition NUMBER", "number of the partition (default: all)", type=int),
    option(
        "-o --offset OFFSET",
        "start: beginning, end, N, -N (from the end) or s@MS (from that time); e@MS: end; with "
        "--group beginning or end, for what it has not read (default: %(default)s)",
        default="beginning",
    ),
    option("-c --count N", "number of records to print (default: no limit)", type=int),
    option(
        "-e --exit-at-end",
        "stop at the end of each partition, or with --share after 2 s without a record (default: "
        "wait for new records)",
    ),
    option("-K --key-delimiter DELIMITER", "separator; print keys too (default: values only)"),
    option(
        "-f --format-string FORMAT",
        "%%t topic %%p partition %%o offset %%T time %%k key %%s value %%h headers %%K %%S "
        "lengths; \\n \\t",
    ),
    option(
        "--isolation-level",
        "which records of transactions to read (default: %(default)s, as kcat)",
        choices=tuple(ISOLATION),
        default="read_committed",
    ),
    option("-J --json", "print each record as a JSON object"),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla consume`: print records until the requested number of records or the end of the
    partitions is reached, or until Ctrl-C. Returns the exit code."""
    start, stop = parse_offset(arguments.offset)
    wanted = WantedTopics(arguments.topics, is_regex=arguments.regex)
    if arguments.partition is not None and (wanted.is_pattern or len(arguments.topics) > 1):
        raise ConfigError("--partition", "belongs to one topic; name that topic alone")
    if arguments.share is not None:
        from ottla.cli.records.consume_share import take_as_member

        return run_async(lambda: take_as_member(arguments, wanted))
    if arguments.group is not None:
        # Imported late: only members of a group need the consumer.
        from ottla.cli.records.consume_group import read_as_member

        return run_async(lambda: read_as_member(arguments, wanted))

    async def body() -> int:
        async with open_cluster(bootstrap_of(arguments)) as cluster:
            topics = await topics_of(cluster, wanted)
            if not topics:
                raise RefusedError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic of which the name matches {' or '.join(arguments.topics)}",
                )
            positions = [
                await _position(cluster, arguments, at, start, stop)
                for topic in topics
                for at in await _partitions(cluster, topic, arguments.partition)
            ]
            count = await _read(cluster, arguments, positions)
            note(f"{counted(count, 'record')} read from {', '.join(topics)}")
            return 0

    return run_async(body)


async def _partitions(cluster: Cluster, topic: str, only_this: int | None) -> list[TopicPartition]:
    partitions = await cluster.partitions_of(topic)
    if only_this is not None:
        if only_this not in partitions:
            raise ConfigError("--partition", f"is {only_this}; the topic has 0 to {partitions[-1]}")
        partitions = [only_this]
    return [TopicPartition(topic, one) for one in partitions]


def parse_offset(text: str) -> tuple[str, int | None]:
    """Parse the value of the option --offset as kcat does. Returns the start position, and the
    timestamp, in milliseconds, at which reading ends. The timestamp is None if the value has no
    end."""
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
    at: TopicPartition,
    start: str,
    stop_ms: int | None,
) -> ReadPosition:
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
    return ReadPosition(at.topic, at.partition, offset, end)


async def _offset_at(cluster: Cluster, at: TopicPartition, timestamp: int, level: str) -> int:
    return (await offsets_at(cluster, [at], timestamp, isolation_level=level))[at]


async def _read(
    cluster: Cluster, arguments: argparse.Namespace, positions: list[ReadPosition]
) -> int:
    """Print records of the partitions in `positions` until the requested number of records or the
    end offsets are reached. Returns the number of printed records."""
    left = arguments.count if arguments.count is not None else sys.maxsize
    printer, decoder = Printer(arguments), RecordDecoder()
    failures = 0
    while left > 0:
        open_ = [p for p in positions if p.end_offset is None or p.offset < p.end_offset]
        if not open_:
            break
        found, stale = await fetch_once(cluster, open_, arguments.isolation_level, decoder)
        failures = failures + 1 if stale else 0
        if failures > ATTEMPTS:
            raise_for(stale)
        if stale:
            cluster.forget_leaders()
            await trio.sleep(0.1)
        for position, records in found:
            for record in wanted_of(records, position):
                if left == 0:
                    break
                printer.show(position, record)
                position.offset = record.offset + 1
                left -= 1
        sys.stdout.flush()
    return printer.count
