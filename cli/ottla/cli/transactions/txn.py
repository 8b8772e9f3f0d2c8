"""`ottla txn list|describe|producers|find-hanging|abort`: shows transactions, and aborts hanging
ones."""

import argparse
import time
from collections.abc import Sequence

from ottla.cli.cluster.cleaning.cleaner_targets import NamedLogs, parse_named
from ottla.cli.common import counted, print_json
from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import Moment, print_table
from ottla.cli.terminal import note, say
from ottla.cli.times import parse_duration
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.facts.hanging import (
    LATE_MS,
    open_transactions,
)
from ottla.insight.facts.hanging_driver import without_coordinator
from ottla.model.amounts import duration, moment
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import Offset, ProducerId, TopicPartition

TIMEOUT_MS_MAX = 15 * 60_000
"""Kafka's default of transaction.max.timeout.ms, in ms. A cluster may have another value."""

LIST_COLUMNS = ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "COORDINATOR")
PRODUCER_COLUMNS = (
    "TOPIC", "PARTITION", "PRODUCER-ID", "EPOCH", "LAST-SEQUENCE", "LAST-WRITE",
    "COORDINATOR-EPOCH", "OPEN-FROM",
)  # fmt: skip


async def list_transactions(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla txn list`: list the transactional ids of all coordinators. Returns the exit code."""
    found = await admin.list_transactions(
        states=arguments.state,
        producer_ids=map(ProducerId, arguments.producer_id),
        longer_than_ms=_duration_ms(arguments.longer_than, None),
        pattern=arguments.match,
    )
    rows = [(one.transactional_id, one.state, one.producer_id, one.coordinator) for one in found]
    show(arguments, LIST_COLUMNS, rows, command="txn")
    return 0


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla txn describe`: show the state of every named transactional id. Each refusal is
    printed. Returns the exit code."""
    found, refusals = [], []
    for transactional_id in dict.fromkeys(arguments.ids):
        try:
            found.append(await admin.describe_transaction(transactional_id))
        except RefusedError as refusal:
            refusals.append(_of_id(transactional_id, refusal))
    if arguments.format == "json":
        print_json([_object(one) for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                say()
            _say_transaction(one)
    for one_refused in refusals[:-1]:
        note(f"ottla txn: {one_refused}")
    if refusals:
        raise refusals[-1]
    return 0


def _of_id(transactional_id: str, refusal: RefusedError) -> RefusedError:
    if refusal.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return refusal
    return RefusedError(
        refusal.code,
        f"no coordinator knows transactional id {transactional_id!r}; see 'ottla txn list'",
    )


def _say_transaction(one: TransactionDescription) -> None:
    say(
        f"{one.transactional_id}: {one.state}, producer {one.producer_id} of epoch "
        f"{one.producer_epoch}, coordinated by broker {one.coordinator}"
    )
    began = "" if one.start_ms is None else f"began {moment(one.start_ms)}, "
    say(f"{began}timeout {duration(one.timeout_ms)}, {counted(len(one.partitions), 'partition')}")
    if one.partitions:
        print_table(("TOPIC", "PARTITION"), sorted(one.partitions))


def _object(one: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "start_ms": one.start_ms,
        "partitions": [str(at) for at in sorted(one.partitions)],
    }


async def producers(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla txn producers`: show the active producers of partitions, as the partitions' leaders
    report them. Returns the exit code."""
    found = await admin.describe_producers(await _partitions(admin, arguments.named))
    rows = [_producer_row(at, producer) for at in sorted(found) for producer in sorted(found[at])]
    show(arguments, PRODUCER_COLUMNS, rows, command="txn")
    return 0


def _producer_row(at: TopicPartition, producer: ActiveProducer) -> tuple[object, ...]:
    return (
        at.topic,
        at.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence if producer.last_sequence >= 0 else None,
        Moment(producer.last_timestamp_ms),
        producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        producer.transaction_start,
    )


async def find_hanging(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla txn find-hanging`: show the hanging transactions, which no coordinator will end.
    Returns exit code 1 if there are any."""
    longer_than_ms = _duration_ms(arguments.longer_than, TIMEOUT_MS_MAX + LATE_MS)
    assert longer_than_ms is not None
    found = await admin.describe_producers(await _partitions(admin, arguments.named))
    before_ms = int(time.time() * 1_000) - longer_than_ms
    hanging = await without_coordinator(admin, open_transactions(found, before_ms=before_ms))
    rows = [_producer_row(one.at, one.producer) for one in hanging]
    if arguments.format == "json" or rows:
        show(arguments, PRODUCER_COLUMNS, rows, command="txn")
    else:
        say("no transaction hangs")
    if rows and arguments.format != "json":
        first = hanging[0]
        say()
        say(
            f"'ottla txn abort {first.at.topic}:{first.at.partition} --start-offset {first.start}' "
            "aborts the first of them"
        )
    return 1 if rows else 0


async def abort(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla txn abort`: abort one open transaction in its partition if the user confirms. Returns
    the exit code."""
    named = parse_named(arguments.named)
    if named.partition is None:
        raise ConfigError("TOPIC:PARTITION", f"is {arguments.named!r}; it must name one partition")
    at = TopicPartition(named.topic, named.partition)
    found = await admin.describe_producers(await _partitions(admin, [arguments.named]))
    start = Offset(arguments.start_offset)
    chosen = [one for one in open_transactions(found) if one.start == start]
    if not chosen:
        raise RefusedError(
            ErrorCode.INVALID_TXN_STATE,
            f"no transaction is open in {at} from offset {start} on; see "
            f"'ottla txn producers {arguments.named}'",
        )
    if not arguments.force and not await without_coordinator(admin, chosen):
        raise RefusedError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction in {at} from offset {start} on is its coordinator's to end, which "
            "does so at its timeout; --force aborts it here all the same",
        )
    (one,) = chosen
    question = f"abort the transaction in {at} from offset {start} on?"
    if not await confirm_in_loop(arguments, question):
        return 0
    await admin.abort_transaction(at, one.producer)
    row = (at.topic, at.partition, one.producer.producer_id, start)
    show(arguments, ("TOPIC", "PARTITION", "PRODUCER-ID", "ABORTED-FROM"), [row], command="txn")
    return 0


async def _partitions(admin: Admin, texts: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions that the command line names, or all partitions if it names none.

    Raises RefusedError(UNKNOWN_TOPIC_OR_PARTITION) if a named topic or partition does not exist.
    """
    named = [parse_named(text) for text in texts]
    topics = sorted({one.topic for one in named}) if named else await _all_topics(admin)
    present = {
        topic: [one.partition for one in (await admin.describe_topic(topic)).partitions]
        for topic in topics
    }
    wanted = named or [NamedLogs(topic, None) for topic in topics]
    found: dict[TopicPartition, None] = {}
    for topic, index in wanted:
        if index is not None and index not in present[topic]:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {index}; it has "
                f"{counted(len(present[topic]), 'partition')}",
            )
        for partition in present[topic] if index is None else [index]:
            found[TopicPartition(topic, partition)] = None
    return list(found)


async def _all_topics(admin: Admin) -> list[str]:
    """Return the names of all topics. Internal topics are included, because they may contain
    transactions."""
    return sorted(topic.name or "" for topic in (await admin.cluster.metadata()).topics)


def _duration_ms(text: str | None, default: int | None) -> int | None:
    return default if text is None else int(parse_duration("--longer-than", text) * 1_000)


VERBS = (
    admin_verb(
        "list",
        "list transactional ids and their states",
        list_transactions,
        option(
            "--state STATE ...",
            "state of the transactions, such as Ongoing; may be repeated (default: all)",
        ),
        option("--producer-id N ...", "producer id; may be repeated (default: all)", type=int),
        option(
            "--longer-than TIME",
            "minimum age of the open transactions, such as 90s (default: none)",
        ),
        option("--match REGEX", "regular expression (RE2) of transactional ids (default: all)"),
    ),
    admin_verb(
        "describe",
        "show transactions by their transactional ids",
        describe,
        option("ids TRANSACTIONAL-ID ...", "transactional id"),
    ),
    admin_verb(
        "producers",
        "show the producers of partitions, and their open transactions",
        producers,
        option("named TOPIC[:PARTITION] ...", "topic or partition"),
    ),
    admin_verb(
        "find-hanging",
        "find transactions without a coordinator that would end them",
        find_hanging,
        option("named TOPIC[:PARTITION]", "topics or partitions (default: all topics)", nargs="*"),
        option(
            "--longer-than TIME",
            "minimum time since the last record (default: 20m, the longest transaction timeout "
            "and five minutes)",
        ),
    ),
    admin_verb(
        "abort",
        "abort a hanging transaction in one partition",
        abort,
        option("named TOPIC:PARTITION", "partition"),
        option(
            "--start-offset N",
            "first offset of the transaction, as OPEN-FROM of 'ottla txn producers'",
            required=True,
            type=int,
        ),
        option("--force", "abort it although its coordinator may still commit it"),
        YES,
    ),
)
