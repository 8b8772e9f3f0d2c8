"""`ottla topic alter|add-partitions|trim|elect`: what changes a topic that is there."""

import argparse
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.cli.common import counted
from ottla.cli.outcomes import Refusal, show
from ottla.cli.terminal import note
from ottla.cli.times import parse_time
from ottla.cli.topics.config_changes import (
    Entity,
    Setting,
    add_change_arguments,
    add_dry_run_argument,
    alter,
    own_source,
    parse_changes,
    settings_of,
)
from ottla.cli.topics.offsets import by_leader, offsets_at
from ottla.client.cluster import Cluster, raise_for
from ottla.model.errors import ConfigError, ErrorCode, row_of
from ottla.model.ids import TopicPartition
from ottla.model.settings.dynamic import ResourceType
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.offset_timestamps import EARLIEST, LATEST

REQUEST_TIMEOUT_MS = 30_000
PREFERRED, UNCLEAN = 0, 1
NOBODY = -1


def configure_changes(verbs: Any) -> list[argparse.ArgumentParser]:
    """Declare the verbs; return their parsers."""
    alter_ = verbs.add_parser("alter", help="change settings of topics")
    alter_.add_argument("names", nargs="+", metavar="NAME")
    alter_.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting; KEY+=VALUE and KEY-=VALUE change a list; may be repeated",
    )
    add_change_arguments(alter_)
    add = verbs.add_parser("add-partitions", help="give topics more partitions")
    add.add_argument("names", nargs="+", metavar="NAME")
    count = add.add_mutually_exclusive_group(required=True)
    count.add_argument("--by", type=int, metavar="COUNT", help="so many more")
    count.add_argument("--to", type=int, metavar="COUNT", help="so many in all")
    add_dry_run_argument(add)
    trim_ = verbs.add_parser("trim", help="delete the oldest records")
    trim_.add_argument("name", metavar="NAME")
    _add_partition_argument(trim_)
    upto = trim_.add_mutually_exclusive_group(required=True)
    upto.add_argument("--before", type=int, metavar="OFFSET", help="all below this offset")
    upto.add_argument(
        "--before-time", metavar="TIME", help="all before a time: 2026-07-31T12:00, or 36h ago"
    )
    upto.add_argument("--all", action="store_true", help="all that is committed")
    add_dry_run_argument(trim_)
    elect_ = verbs.add_parser("elect", help="give leadership to each partition's first replica")
    elect_.add_argument("names", nargs="*", metavar="NAME", help="(default: every topic)")
    _add_partition_argument(elect_)
    elect_.add_argument(
        "--unclean",
        action="store_true",
        help="let any live replica lead where nobody does; acknowledged records may be lost",
    )
    add_dry_run_argument(elect_)
    return [alter_, add, trim_, elect_]


async def alter_topics(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Change settings of every named topic, or say why not."""
    changes = parse_changes("--config", arguments.config, arguments.unset)
    entities = [Entity(ResourceType.TOPIC, name) for name in dict.fromkeys(arguments.names)]
    keys = [change.key for change in changes]
    before: dict[Entity, dict[str, Setting]] = {}
    for entity in entities:
        before[entity] = await settings_of(cluster, entity, keys)
    refusals = await alter(cluster, entities, changes, is_dry=arguments.dry_run)
    rows = []
    for entity in entities:
        for change in changes if entity not in refusals else ():
            now = before[entity].get(change.key)
            after = change.after(now, own_source(entity))
            rows.append((entity.name, change.key, None if now is None else now.value, after))
    _say_if_dry(arguments)
    show(arguments, ("TOPIC", "KEY", "WAS", "NOW"), rows, list(refusals.values()))
    return 0


async def add_partitions(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Give every named topic more partitions."""
    topics = await _topics(cluster, arguments.names)
    counts = {topic.name or "": len(topic.partitions) for topic in topics}
    by: int | None = arguments.by
    if by is not None and by < 1:
        raise ConfigError("--by", f"is {by}; it must be at least 1")
    wanted = {name: arguments.to if by is None else count + by for name, count in counts.items()}
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in wanted.items()
        ],
        timeout_ms=REQUEST_TIMEOUT_MS,
        validate_only=arguments.dry_run,
    )
    answer = await cluster.request(request, CreatePartitionsResponse)
    rows: list[Sequence[Any]] = []
    refusals: list[Refusal] = []
    for result in answer.results:
        if result.error_code == ErrorCode.NONE:
            rows.append((result.name, counts[result.name], wanted[result.name]))
        else:
            said = result.error_message or row_of(result.error_code).meaning
            refusals.append((result.error_code, f"topic {result.name!r}: {said.rstrip('.')}"))
    _say_if_dry(arguments)
    if rows:
        note("new records of a key may go to another partition than the old ones")
    show(arguments, ("TOPIC", "WAS", "PARTITIONS"), rows, refusals)
    return 0


async def trim(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Delete the oldest records of a topic."""
    topic: str = arguments.name
    partitions = [p.partition_index for p in await _partitions(cluster, topic, arguments)]
    if arguments.before is not None and len(partitions) > 1:
        raise ConfigError(
            "--before",
            f"is an offset of one partition; name it with --partition (0 to {len(partitions) - 1})",
        )
    starts = await _offsets_of(cluster, topic, partitions, EARLIEST)
    ends = await _offsets_of(cluster, topic, partitions, LATEST)
    if arguments.before is not None:
        targets = dict.fromkeys(partitions, arguments.before)
    elif arguments.before_time is not None:
        moment_ms = parse_time("--before-time", arguments.before_time, _now_ms())
        found = await _offsets_of(cluster, topic, partitions, moment_ms)
        targets = {one: ends[one] if at < 0 else at for one, at in found.items()}
    else:
        targets = ends
    refusals: dict[int, Refusal] = {
        one: (
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{one}: offset {targets[one]} is not there; what is committed ends before "
            f"{ends[one]}",
        )
        for one in partitions
        if not 0 <= targets[one] <= ends[one]
    }
    due = [one for one in partitions if starts[one] < targets[one] <= ends[one]]
    if not arguments.dry_run:
        refusals |= await _delete(cluster, topic, {one: targets[one] for one in due})
    rows = [
        (one, starts[one], targets[one], ends[one], targets[one] - starts[one])
        for one in due
        if one not in refusals
    ]
    _say_if_dry(arguments)
    columns = ("PARTITION", "WAS-START", "START", "END", "OFFSETS-DELETED")
    show(arguments, columns, rows, list(refusals.values()))
    return 0


async def _offsets_of(
    cluster: Cluster, topic: str, partitions: list[int], timestamp: int
) -> dict[int, int]:
    wanted = [TopicPartition(topic, one) for one in partitions]
    found = await offsets_at(cluster, wanted, timestamp)
    return {at.partition: offset for at, offset in found.items()}


async def _delete(cluster: Cluster, topic: str, before: dict[int, int]) -> dict[int, Refusal]:
    refusals = {}
    for leader, led in (await by_leader(cluster, topic, before)).items():
        asked = [DeleteRecordsPartition(partition_index=one, offset=before[one]) for one in led]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=asked)],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        answer = await cluster.request(request, DeleteRecordsResponse, node=leader)
        for result in answer.topics[0].partitions:
            if result.error_code != ErrorCode.NONE:
                at, code = result.partition_index, result.error_code
                refusals[at] = (code, f"{topic}-{at}: {_why_kept(topic, code)}")
    return refusals


def _why_kept(topic: str, code: int) -> str:
    match code:
        case ErrorCode.POLICY_VIOLATION:
            return (
                "its cleanup.policy does not include delete; "
                f"'ottla config set --topic {topic} cleanup.policy+=delete' allows it"
            )
        case ErrorCode.REQUEST_TIMED_OUT:
            return "deleted by its leader, but not yet by every live replica; ask again"
    return row_of(code).meaning.rstrip(".")


async def elect(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Hold elections where the first replica does not lead, or (unclean) where nobody does."""
    if arguments.unclean and not arguments.names:
        raise ConfigError("--unclean", "may lose records; name the topics it is for")
    if arguments.partition and len(arguments.names) != 1:
        raise ConfigError("--partition", "belongs to one topic; name that topic alone")
    wanted: dict[str, list[MetadataResponsePartition]] = {}
    for topic in await _topics(cluster, arguments.names or None):
        name = topic.name or ""
        rows = _chosen(name, topic.partitions, arguments.partition)
        due = [row for row in rows if _needs_election(row, arguments.unclean)]
        if due:
            wanted[name] = due
    if wanted and not arguments.dry_run:
        refusals = await _elect(cluster, wanted, UNCLEAN if arguments.unclean else PREFERRED)
        leaders = await _leaders(cluster, wanted)
    else:
        refusals, leaders = {}, {}

    def expected(row: MetadataResponsePartition) -> int | None:
        return None if arguments.unclean else row.replica_nodes[0]

    rows_ = [
        (name, row.partition_index, _leader(row.leader_id), leaders.get(at, expected(row)))
        for name, due in wanted.items()
        for row in due
        if (at := (name, row.partition_index)) not in refusals
    ]
    _say_if_dry(arguments)
    show(arguments, ("TOPIC", "PARTITION", "WAS", "LEADER"), rows_, list(refusals.values()))
    if not wanted:
        note("no election is needed")
    return 0


async def _elect(
    cluster: Cluster, wanted: dict[str, list[MetadataResponsePartition]], election_type: int
) -> dict[tuple[str, int], Refusal]:
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=[
            TopicPartitions(topic=name, partitions=[row.partition_index for row in rows])
            for name, rows in wanted.items()
        ],
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    answer = await cluster.request(request, ElectLeadersResponse)
    raise_for(answer.error_code)
    states = {(name, row.partition_index): row for name, rows in wanted.items() for row in rows}
    refusals = {}
    for topic in answer.replica_election_results:
        for result in topic.partition_result:
            code, at = result.error_code, (topic.topic, result.partition_id)
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                said = _why_not_elected(code, states[at], result.error_message)
                refusals[at] = (code, f"{topic.topic}-{result.partition_id}: {said}")
    return refusals


def _why_not_elected(code: int, row: MetadataResponsePartition, message: str | None) -> str:
    match code:
        case ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            first = row.replica_nodes[0]
            return (
                f"its first replica, broker {first}, is not in sync; "
                f"see 'ottla broker describe {first}'"
            )
        case ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            brokers = ", ".join(map(str, row.replica_nodes))
            return f"none of its replicas is alive; start one of the brokers {brokers}"
    return (message or row_of(code).meaning).rstrip(".")


async def _leaders(cluster: Cluster, topics: Iterable[str]) -> dict[tuple[str, int], int | None]:
    return {
        (topic.name or "", row.partition_index): _leader(row.leader_id)
        for topic in (await cluster.metadata(topics)).topics
        for row in topic.partitions
    }


CHANGES = {
    "alter": alter_topics,
    "add-partitions": add_partitions,
    "trim": trim,
    "elect": elect,
}


def _add_partition_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
        action="append",
        default=[],
        metavar="NUMBER",
        help="this partition only; may be repeated",
    )


async def _topics(cluster: Cluster, names: Sequence[str] | None) -> list[MetadataResponseTopic]:
    wanted = None if names is None else list(dict.fromkeys(names))
    topics = (await cluster.metadata(wanted)).topics
    for topic in topics:
        code = topic.error_code
        is_unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        said = "it does not exist; see 'ottla topic list'" if is_unknown else row_of(code).meaning
        raise_for(code, f"topic {topic.name!r}: {said}")
    return sorted(topics, key=lambda topic: topic.name or "")


async def _partitions(
    cluster: Cluster, topic: str, arguments: argparse.Namespace
) -> list[MetadataResponsePartition]:
    (found,) = await _topics(cluster, [topic])
    return _chosen(topic, found.partitions, arguments.partition)


def _chosen(
    topic: str, rows: Iterable[MetadataResponsePartition], wanted: Sequence[int]
) -> list[MetadataResponsePartition]:
    ordered = sorted(rows, key=lambda row: row.partition_index)
    unknown = set(wanted).difference(row.partition_index for row in ordered)
    if unknown:
        raise ConfigError(
            "--partition",
            f"is {min(unknown)}, but topic {topic!r} has {counted(len(ordered), 'partition')}, "
            f"from 0 to {len(ordered) - 1}",
        )
    return [row for row in ordered if not wanted or row.partition_index in wanted]


def _needs_election(row: MetadataResponsePartition, is_unclean: bool) -> bool:
    if is_unclean:
        return row.leader_id == NOBODY
    return row.leader_id != row.replica_nodes[0]


def _leader(node_id: int) -> int | None:
    return None if node_id == NOBODY else node_id


def _say_if_dry(arguments: argparse.Namespace) -> None:
    if arguments.dry_run:
        note("nothing was changed (--dry-run)")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
