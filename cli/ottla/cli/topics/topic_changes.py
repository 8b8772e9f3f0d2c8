"""`ottla topic alter|add-partitions|trim|elect`: changes existing topics."""

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence

from ottla.cli.common import counted
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.outcomes import meaning_of, show
from ottla.cli.tables import note_table
from ottla.cli.terminal import note
from ottla.cli.topics.config_changes import (
    Entity,
    alter,
    parse_changes,
    settings_of,
    value_after,
)
from ottla.cli.topics.unclean_candidates import COLUMNS, UncleanCandidate, best_first, candidates_of
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigEntry
from ottla.client.network.cluster import raise_for
from ottla.insight.facts.offsets import offsets_at
from ottla.insight.rules.config_losses import losses_of
from ottla.model.errors import ConfigError, ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition
from ottla.model.points_in_time import parse_time
from ottla.model.settings.resources import ConfigKind
from ottla.wire.messages.metadata_response import MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.offset_timestamps import EARLIEST, LATEST

NOBODY = -1


async def alter_topics(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic alter`: change the settings of every named topic. The user has to confirm
    changes that delete records or put them at risk. Each refusal is printed. Returns the exit code.
    """
    changes = parse_changes("--config", arguments.config, arguments.unset)
    entities = [Entity(ConfigKind.TOPIC, name) for name in dict.fromkeys(arguments.names)]
    keys = [change.key for change in changes]
    before: dict[Entity, dict[str, ConfigEntry]] = {}
    for entity in entities:
        before[entity] = await settings_of(admin, entity, keys)
    rows = []
    for entity in entities:
        for change in changes:
            now = before[entity].get(change.key)
            after = value_after(entity, change, before[entity])
            rows.append((entity, change.key, None if now is None else now.value, after))
    losses = [] if arguments.dry_run else losses_of(row[1:] for row in rows)
    question = f"{'; '.join(dict.fromkeys(losses))}: change it?"
    if losses and not await confirm_in_loop(arguments, question):
        return 0
    refusals = await alter(admin, entities, changes, is_dry=arguments.dry_run)
    shown = [(entity.name, *row) for entity, *row in rows if entity not in refusals]
    _say_if_dry(arguments)
    show(arguments, ("TOPIC", "KEY", "WAS", "NOW"), shown, list(refusals.values()))
    return 0


async def add_partitions(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic add-partitions`: increase the number of partitions of every named topic. Returns
    the exit code."""
    topics = await _topics(admin, arguments.names)
    counts = {topic.name or "": len(topic.partitions) for topic in topics}
    by: int | None = arguments.by
    if by is not None and by < 1:
        raise ConfigError("--by", f"is {by}; it must be at least 1")
    wanted = {name: arguments.to if by is None else count + by for name, count in counts.items()}
    outcomes = await admin.try_create_partitions(wanted, is_rehearsal=arguments.dry_run)
    rows = [
        (name, counts[name], wanted[name]) for name, refusal in outcomes.items() if refusal is None
    ]
    refusals = [
        RefusedError(refusal.code, f"topic {name!r}: {refusal.message.rstrip('.')}")
        for name, refusal in outcomes.items()
        if refusal is not None
    ]
    _say_if_dry(arguments)
    if rows:
        note("new records of a key may go to another partition than the old ones")
    show(arguments, ("TOPIC", "WAS", "PARTITIONS"), rows, refusals)
    return 0


async def trim(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic trim`: delete the oldest records of a topic if the user confirms. Returns the
    exit code."""
    topic: str = arguments.name
    partitions = [p.partition_index for p in await _partitions(admin, topic, arguments)]
    if arguments.before is not None and len(partitions) > 1:
        raise ConfigError(
            "--before",
            f"is an offset of one partition; name it with --partition (0 to {len(partitions) - 1})",
        )
    starts = await _offsets_of(admin, topic, partitions, EARLIEST)
    ends = await _offsets_of(admin, topic, partitions, LATEST)
    if arguments.before is not None:
        targets = dict.fromkeys(partitions, arguments.before)
    elif arguments.before_time is not None:
        moment_ms = parse_time("--before-time", arguments.before_time, _now_ms())
        found = await _offsets_of(admin, topic, partitions, moment_ms)
        targets = {one: ends[one] if at < 0 else at for one, at in found.items()}
    else:
        targets = ends
    refusals = {
        one: RefusedError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{one}: offset {targets[one]} is not there; what is committed ends before "
            f"{ends[one]}",
        )
        for one in partitions
        if not 0 <= targets[one] <= ends[one]
    }
    due = [one for one in partitions if starts[one] < targets[one] <= ends[one]]
    deleted = sum(targets[one] - starts[one] for one in due)
    question = f"delete {counted(deleted, 'offset')} of topic {topic!r}?"
    if due and not arguments.dry_run:
        if not await confirm_in_loop(arguments, question):
            return 0
        refusals |= await _delete(admin, topic, {one: targets[one] for one in due})
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
    admin: Admin, topic: str, partitions: list[int], timestamp: int
) -> dict[int, int]:
    wanted = [TopicPartition(topic, one) for one in partitions]
    found = await offsets_at(admin.cluster, wanted, timestamp)
    return {at.partition: offset for at, offset in found.items()}


async def _delete(admin: Admin, topic: str, before: dict[int, int]) -> dict[int, RefusedError]:
    outcomes = await admin.try_delete_records(
        {TopicPartition(topic, one): offset for one, offset in before.items()}
    )
    return {
        at.partition: RefusedError(outcome.code, f"{at}: {_keeping_reason(topic, outcome.code)}")
        for at, outcome in outcomes.items()
        if isinstance(outcome, RefusedError)
    }


def _keeping_reason(topic: str, code: int) -> str:
    match code:
        case ErrorCode.POLICY_VIOLATION:
            return (
                "its cleanup.policy does not include delete; "
                f"'ottla config set --topic {topic} cleanup.policy+=delete' allows it"
            )
        case ErrorCode.REQUEST_TIMED_OUT:
            return "deleted by its leader, but not yet by every live replica; ask again"
    return row_of(code).meaning.rstrip(".")


async def elect(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic elect`: elect leaders of the partitions that need an election. Returns the exit
    code.

    Without --unclean, the preferred replica of each partition becomes its leader. With --unclean,
    partitions without a leader are led by the replica that lacks the fewest records, if the user
    confirms.
    """
    if arguments.unclean and not arguments.names:
        raise ConfigError("--unclean", "may lose records; name the topics it is for")
    if arguments.partition and len(arguments.names) != 1:
        raise ConfigError("--partition", "belongs to one topic; name that topic alone")
    wanted: dict[str, list[MetadataResponsePartition]] = {}
    for topic in await _topics(admin, arguments.names or None):
        name = topic.name or ""
        rows = _chosen(name, topic.partitions, arguments.partition)
        due = [row for row in rows if _needs_election(row, arguments.unclean)]
        if due:
            wanted[name] = due
    is_held = bool(wanted) and not arguments.dry_run
    if wanted and arguments.unclean:
        candidates = await candidates_of(admin, _replicas(wanted))
        note_table(COLUMNS, [one.row() for one in candidates])
        note("the candidate that lacks least is elected, and the others cut their logs to it")
        if not await confirm_in_loop(arguments, "hold the unclean election?"):
            return 0
        refusals = await _elect_best(admin, wanted, candidates)
        leaders = await _leaders(admin, wanted)
    elif is_held:
        refusals = await _elect(admin, wanted, is_unclean=False)
        leaders = await _leaders(admin, wanted)
    else:
        refusals, leaders = {}, {}

    def expected(row: MetadataResponsePartition) -> int | None:
        return None if arguments.unclean else row.replica_nodes[0]

    rows_ = [
        (name, row.partition_index, _leader(row.leader_id), leaders.get(at, expected(row)))
        for name, due in wanted.items()
        for row in due
        if (at := TopicPartition(name, row.partition_index)) not in refusals
    ]
    _say_if_dry(arguments)
    show(arguments, ("TOPIC", "PARTITION", "WAS", "LEADER"), rows_, list(refusals.values()))
    if not wanted:
        note("no election is needed")
    return 0


def _replicas(
    wanted: dict[str, list[MetadataResponsePartition]],
) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(name, row.partition_index): list(row.replica_nodes)
        for name, rows in wanted.items()
        for row in rows
    }


async def _elect_best(
    admin: Admin,
    wanted: dict[str, list[MetadataResponsePartition]],
    candidates: Sequence[UncleanCandidate],
) -> dict[TopicPartition, RefusedError]:
    """Elect the replica that lacks the fewest records in each partition without a leader. Returns
    the refusals by partition.

    The controller elects the first live replica. Therefore, the best candidate is moved to the
    front of the replica list before the election, and moved back after it.
    """
    replicas = _replicas(wanted)
    orders = best_first(candidates, replicas)
    refused = {at for at, why in (await _reorder(admin, orders)).items() if why is not None}
    for at in refused:
        note(f"{at}: its replicas could not be put in another order; the first live one is elected")
    try:
        return await _elect(admin, wanted, is_unclean=True)
    finally:
        await _reorder(admin, {at: replicas[at] for at in orders if at not in refused})


async def _reorder(
    admin: Admin, orders: Mapping[TopicPartition, Sequence[int]]
) -> Mapping[TopicPartition, RefusedError | None]:
    return await admin.try_alter_reassignments(orders) if orders else {}


async def _elect(
    admin: Admin, wanted: dict[str, list[MetadataResponsePartition]], *, is_unclean: bool
) -> dict[TopicPartition, RefusedError]:
    states = {
        TopicPartition(name, row.partition_index): row
        for name, rows in wanted.items()
        for row in rows
    }
    outcomes = await admin.try_elect_leaders(states, is_unclean=is_unclean)
    return {
        at: RefusedError(refusal.code, f"{at}: {_election_refusal(refusal, states[at])}")
        for at, refusal in outcomes.items()
        if refusal is not None and refusal.code is not ErrorCode.ELECTION_NOT_NEEDED
    }


def _election_refusal(refusal: RefusedError, row: MetadataResponsePartition) -> str:
    match refusal.code:
        case ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            first = row.replica_nodes[0]
            return (
                f"its first replica, broker {first}, is not in sync; "
                f"see 'ottla broker describe {first}'"
            )
        case ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            brokers = ", ".join(map(str, row.replica_nodes))
            return f"none of its replicas is alive; start one of the brokers {brokers}"
    return refusal.message.rstrip(".")


async def _leaders(admin: Admin, topics: Iterable[str]) -> dict[TopicPartition, int | None]:
    return {
        TopicPartition(topic.name or "", row.partition_index): _leader(row.leader_id)
        for topic in (await admin.cluster.metadata(topics)).topics
        for row in topic.partitions
    }


async def _topics(admin: Admin, names: Sequence[str] | None) -> list[MetadataResponseTopic]:
    wanted = None if names is None else list(dict.fromkeys(names))
    topics = (await admin.cluster.metadata(wanted)).topics
    for topic in topics:
        raise_for(topic.error_code, f"topic {topic.name!r}: {meaning_of(topic.error_code)}")
    return sorted(topics, key=lambda topic: topic.name or "")


async def _partitions(
    admin: Admin, topic: str, arguments: argparse.Namespace
) -> list[MetadataResponsePartition]:
    (found,) = await _topics(admin, [topic])
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
