"""`ottla consume --group`: reads as a member of a group, and commits the offsets of printed
records.

Records are flushed to standard output before their offsets are committed. Each record is therefore
printed at least once.
"""

import argparse
import signal
import sys

import trio

from ottla.cli.common import bootstrap_of, counted
from ottla.cli.main import INTERRUPTED
from ottla.cli.records.record_printer import Printer
from ottla.cli.records.wanted_topics import WantedTopics, topics_of
from ottla.cli.terminal import note
from ottla.client import Consumer, ConsumerConfig, open_consumer
from ottla.client.fetch.position_reads import ReadPosition
from ottla.client.network.cluster import open_cluster
from ottla.model.errors import ConfigError, RefusedError

RESETS = {"beginning": "earliest", "end": "latest"}
"""Value of auto.offset.reset for each value of --offset, for a group without committed offsets."""

BATCH_RECORDS = 500
POLL_S = 0.5
"""Seconds between two checks whether the consumer has reached the end of all partitions."""
METADATA_AGE_MS = 10_000
"""Maximum age of the consumer's topic metadata in milliseconds. A pattern finds newly created
topics within this time."""


async def read_as_member(arguments: argparse.Namespace, wanted: WantedTopics) -> int:
    """Print records as a member of a consumer group until the requested number of records or the
    end is reached, or until a signal. Then commit the offsets and leave the group. Returns the exit
    code."""
    if arguments.partition is not None:
        raise ConfigError("--partition", "is assigned by the group; leave it out with --group")
    if arguments.offset not in RESETS:
        raise ConfigError(
            "--offset",
            f"is {arguments.offset!r}; with --group it must be beginning or end, and "
            "'ottla group reset' moves a group",
        )
    bootstrap = bootstrap_of(arguments)
    async with open_cluster(bootstrap) as cluster:
        topics = await topics_of(cluster, wanted)
    if not topics:
        note("no topic matches yet; waiting for one")
    config = ConsumerConfig(
        group_id=arguments.group,
        auto_offset_reset=RESETS[arguments.offset],
        isolation_level=arguments.isolation_level,
        metadata_age_ms_max=METADATA_AGE_MS,
    )
    printer = Printer(arguments)
    code = 0
    async with open_consumer(bootstrap, config) as consumer, trio.open_nursery() as nursery:
        if wanted.is_pattern:
            consumer.subscribe(pattern=wanted.pattern)
        else:
            consumer.subscribe(topics)

        async def end_by_signal(task_status: trio.TaskStatus[None]) -> None:
            nonlocal code
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                task_status.started()
                async for _ in signals:
                    code = INTERRUPTED
                    nursery.cancel_scope.cancel()

        await nursery.start(end_by_signal)
        await _read(consumer, arguments, printer)
        nursery.cancel_scope.cancel()
    note(f"{counted(printer.count, 'record')} read as a member of group {arguments.group}")
    return code


async def _read(consumer: Consumer, arguments: argparse.Namespace, printer: Printer) -> None:
    left = sys.maxsize if arguments.count is None else arguments.count
    while left > 0:
        records = await consumer.poll(POLL_S, record_count_max=min(left, BATCH_RECORDS))
        for one in records:
            position = ReadPosition(one.topic, one.partition, one.offset, None)
            printer.show(position, one)
        sys.stdout.flush()
        left -= len(records)
        if not records and arguments.exit_at_end and await _is_at_end(consumer):
            return


async def _is_at_end(consumer: Consumer) -> bool:
    """Return whether the consumer has read all its assigned partitions to their ends. False if no
    partition is assigned."""
    assigned = consumer.assignment
    if not assigned:
        return False
    ends = await consumer.end_offsets(assigned)
    try:
        return all([await consumer.position(at) >= end for at, end in ends.items()])
    except RefusedError:
        return False  # The partition was reassigned during the request.
