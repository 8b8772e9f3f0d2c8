"""Finds full and offline log directories, and the topics that use most of their space. Pure."""

from collections import Counter
from collections.abc import Mapping

from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.survey_driver import SurveyedBroker
from ottla.model.amounts import amount
from ottla.model.errors import ErrorCode

FULL, FILLING = "full", "filling"
"""States of a disk volume in a DescribeNode response."""
OFFLINE_MAX = 10
TIER_BYTES = "tier.remote.bytes"
"""Name of the metric with the size in bytes of a broker's copied segments in the object store."""
TIER_SEGMENTS = "tier.remote.segments"
"""Name of the metric with the number of a broker's copied segments in the object store."""
TIER_LAG_BYTES = "tier.lag.bytes"
"""Name of the metric with the size in bytes of a broker's closed segments that are not copied yet,
and are therefore still on its disk."""
TIER_RELIEF_BYTES = "tier.relief.bytes"
"""Name of the metric with the size in bytes of the copied segments that a broker has deleted from
its disks for `local.retention.free.bytes`. Only brokers with this setting have it."""

TIER_COPY_LIMIT, TIER_COPY_RATE = "tier.copy.limit", "tier.copy.rate"
"""Names of the metrics with the limit and the measured rate of a broker's copies to the object
store, in bytes per second. Brokers without a limit have neither."""
TIER_FETCH_LIMIT, TIER_FETCH_RATE = "tier.fetch.limit", "tier.fetch.rate"
"""Names of the metrics with the limit and the measured rate of a broker's reads from the object
store, in bytes per second. Brokers without a limit have neither."""
COPY_LIMIT_KEY = "remote.log.manager.copy.max.bytes.per.second"
NEAR_LIMIT = 0.9
"""Share of the limit of copies from which on the limit counts as the reason why copies wait."""


def explain_disk(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the log directories that are full, filling or offline."""
    only = values.get("broker", "")
    subject = f"disks of broker {only}" if only else "disks of all brokers"
    unknown = facts.unknown
    for broker in facts.survey.brokers if facts.survey is not None else ():
        if broker.failure and only in ("", str(broker.id)):
            unknown.append(f"directories of broker {broker.id}: {broker.failure}")
    return concluded("disk", subject, disk_causes(facts, only), unknown=unknown)


def disk_causes(facts: ClusterFacts, only: str = "") -> list[Cause]:
    """Return a cause for each log directory that is full or filling, the fullest first, and for
    each offline log directory. `only` limits the causes to the broker with that id."""
    found: list[tuple[int, Cause]] = []
    for broker in facts.survey.brokers if facts.survey is not None else ():
        if only not in ("", str(broker.id)):
            continue
        for directory in broker.directories:
            if directory.state not in (FULL, FILLING):
                continue
            biggest = _biggest_topic(facts, broker.id, directory.path)
            trimmed = NameArgument(biggest or "TOPIC")
            is_full = directory.state == FULL
            effect = "refuses records" if is_full else "will refuse records once it is full"
            found.append(
                (
                    directory.usable_bytes,
                    Cause(
                        kind=f"disk-{directory.state}",
                        summary=f"the volume of {directory.path} at broker {broker.id} is "
                        f"{directory.state}: the broker {effect}",
                        evidence=(
                            Evidence("free bytes", directory.usable_bytes),
                            Evidence("size in bytes", directory.total_bytes),
                            Evidence("broker", broker.id),
                            Evidence("largest topic", biggest),
                            *_copies(broker),
                        ),
                        remedy=_remedy(broker, directory.usable_bytes),
                        fix=command("topic", "trim", trimmed, "--before-time", "36h"),
                        more=command("broker", "logdirs", broker.id, "--replicas"),
                    ),
                )
            )
    causes = [cause for _, cause in sorted(found, key=lambda one: one[0])]
    return [*causes, *_offline(facts, only)]


def _copies(broker: SurveyedBroker) -> tuple[Evidence, ...]:
    """Return the number of bytes in the object store, and the number of bytes that wait to be
    copied, as evidence. Returns no evidence for a broker without tiered storage."""
    if TIER_BYTES not in broker.metrics:
        return ()
    found: tuple[Evidence, ...] = (
        Evidence("bytes in the object store", int(broker.metrics[TIER_BYTES])),
        Evidence("segments in the object store", int(broker.metrics.get(TIER_SEGMENTS, 0))),
        Evidence("bytes that wait to be copied", int(broker.metrics.get(TIER_LAG_BYTES, 0))),
    )
    if TIER_COPY_LIMIT in broker.metrics:
        found = (
            *found,
            Evidence("copied bytes a second", int(broker.metrics.get(TIER_COPY_RATE, 0))),
            Evidence("limit of copied bytes a second", int(broker.metrics[TIER_COPY_LIMIT])),
        )
    if TIER_RELIEF_BYTES not in broker.metrics:
        return found
    relieved = int(broker.metrics[TIER_RELIEF_BYTES])
    return (*found, Evidence("copied bytes deleted for lack of space", relieved))


def _remedy(broker: SurveyedBroker, free_bytes: int) -> str:
    others = f"move replicas away or enlarge the volume ({amount(free_bytes)} are free)"
    if TIER_BYTES not in broker.metrics:
        return f"delete records, {others}"
    if waiting := int(broker.metrics.get(TIER_LAG_BYTES, 0)):
        limit = broker.metrics.get(TIER_COPY_LIMIT)
        if limit is not None and broker.metrics.get(TIER_COPY_RATE, 0) >= NEAR_LIMIT * limit:
            return (
                f"raise {COPY_LIMIT_KEY}, which limits the copies ({amount(waiting)} wait to be "
                f"copied, and stay on the disk until then), {others}"
            )
        return (
            f"make the object store reachable ({amount(waiting)} wait to be copied, and stay on "
            f"the disk until then), {others}"
        )
    if TIER_RELIEF_BYTES not in broker.metrics:
        return (
            "set local.retention.free.bytes, so that copied segments are deleted before the disk "
            f"is full, lower local.retention.bytes of tiered topics, or {others}"
        )
    return (
        "all copied segments that could be deleted are gone: tier the largest topic, lower "
        f"segment.bytes of tiered topics, or {others}"
    )


def _offline(facts: ClusterFacts, only: str) -> list[Cause]:
    return [
        Cause(
            kind="directory-offline",
            summary=f"log directory {one.path} at broker {node} is offline ({one.error.name})",
            evidence=(Evidence("broker", node), Evidence("directory", one.path)),
            remedy="replace the disk and start the broker again; it fetches its replicas from "
            "others",
            fix=command("topic", "reassign", "--evacuate", node),
            more=command("broker", "logdirs", node),
        )
        for node, directories in sorted((facts.log_dirs or {}).items())
        for one in directories
        if one.error is not ErrorCode.NONE and only in ("", str(node))
    ][:OFFLINE_MAX]


def _biggest_topic(facts: ClusterFacts, node: int, path: str) -> str | None:
    sizes: Counter[str] = Counter()
    for one in (facts.log_dirs or {}).get(node, ()):
        if one.path == path:
            for at, replica in one.replicas.items():
                sizes[at.topic] += replica.size_bytes
    return max(sorted(sizes), key=sizes.__getitem__, default=None)
