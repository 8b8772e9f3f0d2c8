"""Finds open transactions that block readers with isolation.level=read_committed. Pure."""

from collections.abc import Iterable, Mapping

from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.hanging import LATE_MS, OpenTransaction, hanging_of
from ottla.model.amounts import duration, moment
from ottla.model.ids import TopicPartition

TRANSACTIONS_MAX = 20


def explain_transaction(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the open transactions in the partitions of a topic."""
    causes = transaction_causes(facts)
    return concluded(
        "transaction", f"topic {values.get('topic', '')}", causes, unknown=facts.unknown
    )


def transaction_causes(
    facts: ClusterFacts, partitions: Iterable[TopicPartition] | None = None
) -> list[Cause]:
    """Return a cause for each open transaction, hanging transactions first. If `partitions` is
    given, only transactions in these partitions are returned."""
    wanted = None if partitions is None else set(partitions)
    found = [
        one
        for one in facts.open_transactions or ()
        if one.producer.transaction_start is not None and (wanted is None or one.at in wanted)
    ][:TRANSACTIONS_MAX]
    # Without the owners it is unknown whether a coordinator will end a transaction.
    owners = facts.transaction_owners
    hanging = [] if owners is None else hanging_of(found, owners)
    return [
        *(_hanging(facts, one) for one in hanging),
        *(_owned(facts, one) for one in found if one not in hanging),
    ]


def _hanging(facts: ClusterFacts, one: OpenTransaction) -> Cause:
    return Cause(
        kind="hanging-transaction",
        summary=f"a transaction in {one.at} is open and no coordinator will end it",
        evidence=_evidence(facts, one),
        fix=_abort(one),
        more=command("txn", "find-hanging", NameArgument(one.at.topic)),
    )


def _owned(facts: ClusterFacts, one: OpenTransaction) -> Cause:
    owner = next(
        (
            each
            for each in (facts.transaction_owners or {}).get(one.producer.producer_id, ())
            if one.at in each.partitions
        ),
        None,
    )
    if owner is None:
        return Cause(
            kind="open-transaction",
            summary=f"a transaction in {one.at} is open",
            evidence=_evidence(facts, one),
            more=command("txn", "producers", NameArgument(f"{one.at.topic}:{one.at.partition}")),
        )
    ends = ""
    if owner.start_ms is not None:
        is_late = facts.now_ms > owner.start_ms + owner.timeout_ms + LATE_MS
        end = f"aborts it at {moment(owner.start_ms + owner.timeout_ms)}"
        ends = "has not ended it in time" if is_late else end
    return Cause(
        kind="open-transaction",
        summary=f"transactional id {owner.transactional_id} has an open transaction in {one.at}",
        evidence=(
            *_evidence(facts, one),
            Evidence("transactional id", owner.transactional_id),
            Evidence("state", owner.state),
            Evidence("timeout in ms", owner.timeout_ms),
        ),
        remedy=f"its producer must commit or abort it; the coordinator {ends}" if ends else "",
        fix=_abort(one, "--force"),
        more=command("txn", "describe", NameArgument(owner.transactional_id)),
    )


def _abort(one: OpenTransaction, *options: str) -> str:
    name = NameArgument(f"{one.at.topic}:{one.at.partition}")
    return command("txn", "abort", name, "--start-offset", one.producer.transaction_start, *options)


def _evidence(facts: ClusterFacts, one: OpenTransaction) -> tuple[Evidence, ...]:
    producer = one.producer
    idle_ms = max(0, facts.now_ms - producer.last_timestamp_ms)
    return (
        Evidence("partition", str(one.at)),
        Evidence("first offset", producer.transaction_start),
        Evidence("producer id", int(producer.producer_id)),
        Evidence("time since its last record", duration(idle_ms)),
    )
