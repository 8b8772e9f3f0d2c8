"""`ottla group reset`: shows where a group's offsets would go, and moves them when told to."""

import argparse
from datetime import datetime

from ottla.cli.common import print_json, print_table
from ottla.cli.groups.group_requests import (
    NO_OFFSET,
    OFFSETS_BY_NAME_VERSION,
    ask_coordinator,
    committed_offsets,
)
from ottla.cli.terminal import note
from ottla.cli.topics.offsets import offsets_at
from ottla.client.cluster import Cluster, raise_for
from ottla.model.errors import ConfigError, row_of
from ottla.model.ids import TopicPartition
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.offset_timestamps import EARLIEST, LATEST

COLUMNS = ("TOPIC", "PARTITION", "FROM", "TO", "DIFFERENCE")


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where to."""
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="only this topic; may be given more than once (default: all the group committed)",
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="to the first record there is")
    to.add_argument("--to-latest", action="store_true", help="to the end")
    to.add_argument("--to-offset", type=int, metavar="OFFSET", help="to this offset")
    to.add_argument(
        "--to-datetime", metavar="TIME", help="to that time: 2026-01-31T12:00 (or with +01:00)"
    )
    to.add_argument("--shift-by", type=int, metavar="COUNT", help="so many records on, or -N back")
    parser.add_argument("--execute", action="store_true", help="do it")


async def reset(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Show where the offsets are and would be; with --execute, commit that."""
    group = arguments.group
    before = await committed_offsets(cluster, group)
    partitions = sorted(before)
    if arguments.topic:
        partitions = [
            TopicPartition(topic, index)
            for topic in arguments.topic
            for index in await cluster.partitions_of(topic)
        ]
    if not partitions:
        raise ConfigError("--topic", f"is not given, and group {group!r} has committed nothing")
    after = await _wanted(cluster, arguments, before, partitions)
    if arguments.execute:
        await _commit(cluster, group, after)
    rows = [
        (at.topic, at.partition, before.get(at), to, None if at not in before else to - before[at])
        for at, to in after.items()
    ]
    if arguments.format == "json":
        print_json([dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in rows])
    else:
        print_table(COLUMNS, rows)
    if not arguments.execute:
        note("nothing is changed; --execute does it")
    return 0


async def _wanted(
    cluster: Cluster,
    arguments: argparse.Namespace,
    before: dict[TopicPartition, int],
    partitions: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return where each partition goes, never outside of what there is."""
    starts = await offsets_at(cluster, partitions, EARLIEST)
    ends = await offsets_at(cluster, partitions, LATEST)
    if arguments.to_earliest:
        return starts
    if arguments.to_latest:
        return ends
    if arguments.to_datetime is not None:
        wanted = await offsets_at(cluster, partitions, _milliseconds(arguments.to_datetime))
        # Nothing is as late as that: there is only what comes.
        return {at: ends[at] if to == NO_OFFSET else to for at, to in wanted.items()}
    if arguments.shift_by is not None:
        wanted = {at: before.get(at, starts[at]) + arguments.shift_by for at in partitions}
    else:
        wanted = dict.fromkeys(partitions, arguments.to_offset)
    return {at: min(max(to, starts[at]), ends[at]) for at, to in wanted.items()}


def _milliseconds(text: str) -> int:
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise ConfigError("--to-datetime", f"is {text!r}; it must be as 2026-01-31T12:00") from None


async def _commit(cluster: Cluster, group: str, offsets: dict[TopicPartition, int]) -> None:
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for at, offset in offsets.items():
        part = OffsetCommitRequestPartition(partition_index=at.partition, committed_offset=offset)
        by_topic.setdefault(at.topic, []).append(part)
    topics = [OffsetCommitRequestTopic(name=name, partitions=by_topic[name]) for name in by_topic]
    answer = await ask_coordinator(
        cluster,
        group,
        OffsetCommitRequest(group_id=group, topics=topics),
        OffsetCommitResponse,
        lambda answer: answer.topics[0].partitions[0].error_code,
        version=OFFSETS_BY_NAME_VERSION,
    )
    for topic in answer.topics:
        for one in topic.partitions:
            what = f"{topic.name}-{one.partition_index}"
            raise_for(one.error_code, f"{what}: {_reason(one.error_code)}")


def _reason(code: int) -> str:
    row = row_of(code)
    if row.name == "UNKNOWN_MEMBER_ID":
        return "the group has members; stop them first"
    return row.meaning
