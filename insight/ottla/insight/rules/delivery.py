"""Finds the reasons why a share group does not deliver records. Pure."""

from collections.abc import Iterator, Mapping

from ottla.client.admin_parts.admin_share_groups import ShareRecordCounts
from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.model.amounts import counted, moment
from ottla.model.ids import TopicPartition

CAUSES_MAX = 20
LOCK = "share.record.lock.duration.ms"


def explain_delivery(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the reasons why a share group's records are not delivered."""
    group = values.get("group", "")
    causes = [*_no_members(facts, group), *_waiting(facts, group)]
    return concluded("delivery", f"share group {group}", causes[:CAUSES_MAX], unknown=facts.unknown)


def _no_members(facts: ClusterFacts, group: str) -> Iterator[Cause]:
    lag = sum(one.lag or 0 for one in (facts.share_offsets or {}).values())
    if facts.share_group is not None and not facts.share_group.members and lag > 0:
        yield Cause(
            kind="no-members",
            summary=f"{counted(lag, 'record')} wait, and the share group has no members",
            evidence=(Evidence("records", lag), Evidence("state", facts.share_group.state)),
            remedy="start a consumer of the group",
            fix=command("consume", *_topics(facts), "--share", NameArgument(group)),
            more=command("share", "describe", NameArgument(group)),
        )


def _topics(facts: ClusterFacts) -> list[NameArgument]:
    return list(
        map(NameArgument, sorted({at.topic for at in facts.share_offsets or {}}) or ["TOPIC"])
    )


def _waiting(facts: ClusterFacts, group: str) -> Iterator[Cause]:
    if facts.share_deliveries is None:
        return
    for at, offset in sorted((facts.share_offsets or {}).items()):
        counts = facts.share_deliveries.get(at)
        start = offset.start_offset
        if counts is not None:
            yield from _of_partition(at, start, counts, group)
        elif offset.lag and facts.share_group is not None and facts.share_group.members:
            yield Cause(
                kind="not-fetched",
                summary=f"no member fetches {at}, where {counted(offset.lag, 'record')} wait",
                evidence=(Evidence("partition", str(at)), Evidence("records", offset.lag)),
                remedy="its members hang, or do not subscribe to the topic",
                more=command("share", "describe", NameArgument(group)),
            )


def _reset_past(at: TopicPartition, start: int | None, group: NameArgument) -> str:
    """Return a command that resets a share group past the first unread record of a partition."""
    place = NameArgument(f"{at.topic}:{at.partition}")
    offset = 0 if start is None else start + 1
    return command("share", "reset", group, "--topic", place, "--to-offset", offset)


def _of_partition(
    at: TopicPartition, start: int | None, counts: ShareRecordCounts, group: str
) -> Iterator[Cause]:
    name, topic = NameArgument(group), NameArgument(at.topic)
    more = command("share", "describe", name)
    look = command("consume", topic, "-p", at.partition, "-o", start or 0, "-c", 1)
    skip = _reset_past(at, start, name)
    evidence = (Evidence("partition", str(at)), Evidence("start offset", start))
    if counts.acquired_count:
        yield Cause(
            kind="records-acquired",
            summary=f"members hold the locks of {counted(counts.acquired_count, 'record')} in "
            f"{at} and have not acknowledged them",
            evidence=(*evidence, Evidence("acquired records", counts.acquired_count)),
            remedy="end the member that hangs; locks expire after the group's "
            f"{LOCK}, which the command shortens",
            fix=command("config", "set", "--group", name, f"{LOCK}=15000"),
            more=more,
        )
    if counts.backoff_count:
        until = "" if counts.next_backoff_ms is None else f" until {moment(counts.next_backoff_ms)}"
        yield Cause(
            kind="records-in-back-off",
            summary=f"{counted(counts.backoff_count, 'record')} in {at} failed and wait{until}: "
            "its handler rejects or does not survive a record",
            evidence=(*evidence, Evidence("records in back-off", counts.backoff_count)),
            remedy="correct the handler; to skip the record, stop the members and reset the group",
            fix=skip,
            more=look,
        )
    if counts.delayed_count:
        until = (
            "" if counts.next_due_ms is None else f"; the first is due {moment(counts.next_due_ms)}"
        )
        yield Cause(
            kind="records-delayed",
            summary=f"{counted(counts.delayed_count, 'record')} in {at} are not due yet{until}",
            evidence=(*evidence, Evidence("delayed records", counts.delayed_count)),
            fix=command("config", "set", "--topic", topic, "ottla.share.delay.ms=0"),
            more=more,
        )
    if counts.key_count:
        yield Cause(
            kind="records-wait-for-key",
            summary=f"{counted(counts.key_count, 'record')} in {at} wait for others of their key",
            evidence=(*evidence, Evidence("waiting records", counts.key_count)),
            remedy="the records before them must be acknowledged first, or more records of a key "
            "be allowed at once",
            fix=command(
                "config",
                "set",
                "--group",
                NameArgument(group),
                "--unset",
                "ottla.share.key.concurrency",
            ),
            more=more,
        )
    if counts.dead_letter_count:
        yield Cause(
            kind="dead-letters-unwritten",
            summary=f"{counted(counts.dead_letter_count, 'record')} in {at} wait until their dead "
            "letters are written",
            evidence=(*evidence, Evidence("unwritten dead letters", counts.dead_letter_count)),
            remedy="the topic of dead letters does not accept records",
            fix=command("explain", "unavailable"),
            more=more,
        )
