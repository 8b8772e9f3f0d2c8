"""`ottla tier offload`: deletes the local copies of segments that are in the object store, on all
brokers with replicas.

The topic's local retention does not matter. Later reads of these records use the object store."""

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cli.cluster.cleaning.cleaner_targets import ask_each, replicas_of
from ottla.cli.common import print_json
from ottla.cli.main import OK, UNHEALTHY, UNREACHABLE
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note
from ottla.cli.tier.progress_line import BucketProgress
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, RefusedError, code_of
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.messages.offload_logs_request import OffloadLogsRequest, TopicToOffload
from ottla.wire.messages.offload_logs_response import OffloadLogsResponse

PARTITIONS_PER_REQUEST = 20
"""Maximum number of partitions in one request. A broker deletes the segments of these partitions
one after another. A larger number delays the progress line and other commands on this
connection."""

COLUMNS = ("PARTITION", "BROKER", "SEGMENTS", "SIZE", "LOCAL-START")
KEYS = ("partition", "broker", "segments", "size_bytes", "local_start_offset")


class OffloadedReplica(NamedTuple):
    """Result for one replica: the number and size of the local segments that its broker has deleted
    or, in a preview, would delete."""

    at: TopicPartition
    broker: NodeId
    segment_count: int
    size_bytes: int
    local_start_offset: int

    def cells(self) -> tuple[object, ...]:
        """Return the cells of the replica's row in a table."""
        return (
            f"{self.at.topic}:{self.at.partition}",
            self.broker,
            self.segment_count,
            ByteCount(self.size_bytes),
            self.local_start_offset,
        )


class BrokerOutcome(NamedTuple):
    """Results of one broker: its offloaded replicas, and the refusals for its other replicas."""

    replicas: list[OffloadedReplica]
    refusals: list[RefusedError]


async def offload(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla tier offload`: delete the local copies of segments that are in the object store.

    Returns exit code 2 if a broker refuses some of the partitions, 3 if a broker does not respond.
    Raises RefusedError if all partitions are refused.
    """
    targets = await replicas_of(admin, arguments.names, arguments.broker)
    count = sum(len(wanted or ()) for wanted in targets.values())
    with BucketProgress("deleting local copies", "replicas", count) as line:

        async def ask(broker: NodeId) -> BrokerOutcome:
            outcome = BrokerOutcome([], [])
            named = sorted(targets[broker] or ())
            for at in range(0, len(named), PARTITIONS_PER_REQUEST):
                some = named[at : at + PARTITIONS_PER_REQUEST]
                await _ask_once(admin, broker, some, outcome, is_dry_run=arguments.dry_run)
                line.advance(len(some))
            return outcome

        answers = await ask_each(targets, ask)
    outcomes = [one.answer for one in answers if one.answer is not None]
    rows = sorted(row for outcome in outcomes for row in outcome.replicas)
    refusals = list({str(one): one for outcome in outcomes for one in outcome.refusals}.values())
    failures = [one.failure for one in answers if one.answer is None]
    if refusals and not rows and not failures:
        raise refusals[0]
    if arguments.format == "json":
        print_json([dict(zip(KEYS, row.cells(), strict=True)) for row in rows])
    elif rows:
        print_table(COLUMNS, [row.cells() for row in rows])
    for sentence in (*failures, *refusals):
        note(f"ottla tier: {sentence}")
    if failures:
        return UNREACHABLE
    return UNHEALTHY if refusals else OK


async def _ask_once(
    admin: Admin,
    broker: NodeId,
    partitions: Sequence[TopicPartition],
    outcome: BrokerOutcome,
    *,
    is_dry_run: bool,
) -> None:
    """Send one request to a broker, and add its response to `outcome`."""
    request = OffloadLogsRequest(
        validate_only=is_dry_run,
        topics=[
            TopicToOffload(name=topic, partitions=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ],
    )
    answer = await admin.cluster.request(request, OffloadLogsResponse, node=broker)
    raise_for(answer.error_code, answer.error_message)
    for topic in answer.topics:
        for row in topic.partitions:
            at = TopicPartition(topic.name, row.partition_index)
            if row.error_code != ErrorCode.NONE:
                text = f"{at} on broker {broker}: {row.error_message}"
                outcome.refusals.append(RefusedError(code_of(row.error_code), text))
                continue
            outcome.replicas.append(
                OffloadedReplica(
                    at, broker, row.segment_count, row.size_bytes, row.local_start_offset
                )
            )


def _by_topic(partitions: Sequence[TopicPartition]) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at in partitions:
        found.setdefault(at.topic, []).append(at.partition)
    return found
