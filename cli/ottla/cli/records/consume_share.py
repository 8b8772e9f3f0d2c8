"""`ottla consume --share`: reads records as a member of a share group (KIP-932), and accepts the
records that it has printed.

Records are flushed to standard output before they are accepted. Each record is therefore printed at
least once.
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
from ottla.client import ShareConsumer, ShareConsumerConfig, open_share_consumer
from ottla.client.fetch.position_reads import ReadPosition
from ottla.client.network.cluster import open_cluster
from ottla.model.errors import ConfigError

BATCH_RECORDS = 500
EMPTY_S = 2.0
"""Seconds without a record after which the command assumes that the share group has no further
records."""


async def take_as_member(arguments: argparse.Namespace, wanted: WantedTopics) -> int:
    """Join a share group, and print and accept records. Ends after the requested number of records,
    when no records are left, or at a signal. The member then leaves the group. Returns the exit
    code."""
    _check(arguments, wanted)
    bootstrap = bootstrap_of(arguments)
    async with open_cluster(bootstrap) as cluster:
        topics = await topics_of(cluster, wanted)
    config = ShareConsumerConfig(group_id=arguments.share)
    printer = Printer(arguments)
    code = 0
    async with open_share_consumer(bootstrap, config) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topics)

        async def end_by_signal(task_status: trio.TaskStatus[None]) -> None:
            nonlocal code
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                task_status.started()
                async for _ in signals:
                    code = INTERRUPTED
                    nursery.cancel_scope.cancel()

        await nursery.start(end_by_signal)
        await _take(consumer, arguments, printer)
        nursery.cancel_scope.cancel()
    note(
        f"{counted(printer.count, 'record')} accepted as a member of share group {config.group_id}"
    )
    return code


def _check(arguments: argparse.Namespace, wanted: WantedTopics) -> None:
    """Raise ConfigError if `ottla consume` has options that do not apply to share groups."""
    if arguments.group is not None:
        raise ConfigError("--share", "is another type of group than --group; give one of them")
    if arguments.partition is not None:
        raise ConfigError("--partition", "is assigned by the group; leave it out with --share")
    if wanted.is_pattern:
        raise ConfigError("TOPIC", "is a pattern; a share group needs whole names")
    if arguments.offset != "beginning":
        raise ConfigError(
            "--offset",
            "is not for share groups, which begin at share.auto.offset.reset of the group; leave "
            "it out",
        )
    if arguments.isolation_level != "read_committed":
        raise ConfigError(
            "--isolation-level",
            "is not for share groups; set share.isolation.level of the group",
        )


async def _take(consumer: ShareConsumer, arguments: argparse.Namespace, printer: Printer) -> None:
    left = sys.maxsize if arguments.count is None else arguments.count
    while left > 0:
        count = min(left, BATCH_RECORDS)
        is_assigned = bool(consumer.assignment)
        batches = await consumer.poll_batches(EMPTY_S, record_count_max=count)
        for batch in batches:
            for one in batch:
                position = ReadPosition(one.topic, one.partition, one.offset, None)
                printer.show(position, one.data)
        sys.stdout.flush()
        for batch in batches:
            batch.accept()
            left -= len(batch)
        if not batches and arguments.exit_at_end and is_assigned:
            return
