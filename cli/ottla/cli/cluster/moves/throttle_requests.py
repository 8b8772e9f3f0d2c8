"""Sends the requests that set and remove the throttles of replica moves."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.cluster.moves.throttles import (
    RATES,
    ReassignmentThrottle,
    ThrottledReplicaLists,
    UnneededThrottles,
    left_over,
)
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import Append, ConfigChange, ConfigResource, Subtract
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.model.settings.storage.throttled_replicas import (
    LISTS,
    ThrottledReplicas,
    throttled_replicas,
)

TOPICS_AT_ONCE = 500
"""Number of topics whose lists of throttled replicas are requested at once."""


@dataclass(frozen=True, slots=True)
class RemovedThrottles:
    """Result of `remove_unneeded`: topics and brokers whose replication throttles were removed. The
    truth value is False if no throttle was removed."""

    topics: tuple[str, ...]
    """Topics whose lists of throttled replicas were shortened or deleted."""
    brokers: tuple[NodeId, ...]
    """Brokers whose replication throttle rates were removed."""
    every: tuple[str, ...]
    """Topics with the throttle setting `*`, which throttles all of their replicas. This setting was
    not removed."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.brokers)


async def set_throttle(admin: Admin, throttle: ReassignmentThrottle, rate: int) -> None:
    """Set the replication throttle rates of brokers, in bytes per second, then the topics' lists of
    throttled replicas. Existing entries of a list are kept."""
    await set_rates(admin, throttle.brokers, RATES, rate)
    for found in await lists_of(admin, list(throttle.lists)):
        changes = {
            key: Append(str(replicas))
            for key, replicas in throttle.lists[found.topic].items()
            if replicas and not found.lists[key].is_all
        }
        if changes:
            await admin.alter_topic_configs(found.topic, changes)


async def lists_of(admin: Admin, topics: Sequence[str]) -> list[ThrottledReplicaLists]:
    """Return the lists of throttled replicas that are set for topics. A topic that is deleted in
    the meantime is omitted."""
    found = []
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        asked = [ConfigResource(ConfigKind.TOPIC, name) for name in topics[at:][:TOPICS_AT_ONCE]]
        for resource, entries in (await admin.try_describe_configs(asked, keys=LISTS)).items():
            if isinstance(entries, RefusedError):
                if entries.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                raise entries
            lists = {key: throttled_replicas(entries[key].value or "") for key in LISTS}
            found.append(ThrottledReplicaLists(resource.name, lists))
    return found


async def remove_unneeded(
    admin: Admin,
    topics: Sequence[str],
    moving: Collection[TopicPartition],
    *,
    known: Mapping[str, Mapping[str, ThrottledReplicas]],
) -> RemovedThrottles:
    """Remove replication throttles that no replica move needs. Returns the topics and brokers whose
    throttles were removed.

    Partitions that are not in `moving`, the moving partitions of all topics, are removed from the
    lists of throttled replicas of `topics`. If `moving` is empty, the rates of all brokers are
    removed as well. `known` contains lists that were set a moment ago, because the broker that
    responds may not have received them yet.
    """
    found = [
        ThrottledReplicaLists(one.topic, _together(one.lists, known.get(one.topic, {})))
        for one in await lists_of(admin, topics)
    ]
    left = left_over(found, moving)
    for topic in left.removals:
        await admin.alter_topic_configs(topic, _changes(left, topic))
    brokers = [] if moving else await with_rates(admin, RATES)
    await remove_rates(admin, brokers, RATES)
    return RemovedThrottles(tuple(left.removals), tuple(brokers), tuple(left.every))


def _together(
    lists: Mapping[str, ThrottledReplicas], known: Mapping[str, ThrottledReplicas]
) -> dict[str, ThrottledReplicas]:
    return {
        key: one
        if one.is_all or key not in known
        else ThrottledReplicas(one.named | known[key].named)
        for key, one in lists.items()
    }


async def set_rates(
    admin: Admin, brokers: Iterable[NodeId], keys: Collection[str], rate: int
) -> None:
    """Set replication throttle rates of brokers, in bytes per second. `keys` are the settings of
    these rates. If a broker is down, print a note instead, because only the broker itself can
    change its settings."""
    alive = await _alive(admin)
    for broker in brokers:
        if broker in alive:
            await admin.alter_broker_configs(broker, dict.fromkeys(keys, str(rate)))
        else:
            note(f"broker {broker} is down: its part of the moves is not throttled")


async def _alive(admin: Admin) -> list[NodeId]:
    brokers = (await admin.describe_cluster(has_fenced=True)).brokers
    return sorted(one.node for one in brokers if not one.is_fenced)


async def remove_rates(admin: Admin, brokers: Iterable[NodeId], keys: Iterable[str]) -> None:
    """Remove the replication throttle settings `keys` of brokers, whose defaults then apply."""
    changes: Mapping[str, ConfigChange] = dict.fromkeys(keys)
    for broker in brokers:
        await admin.alter_broker_configs(broker, changes)


def _changes(left: UnneededThrottles, topic: str) -> dict[str, ConfigChange]:
    return {
        key: None if (topic, key) in left.emptied else Subtract(str(replicas))
        for key, replicas in left.removals[topic].items()
    }


async def with_rates(admin: Admin, keys: Collection[str]) -> list[NodeId]:
    """Return the brokers that have a value for at least one of the replication throttle settings
    `keys`."""
    found = []
    for broker in await _alive(admin):
        entries = await admin.describe_configs(
            ConfigResource(ConfigKind.BROKER, str(broker)), keys=keys
        )
        if any(entry.source is ConfigSource.BROKER for entry in entries.values()):
            found.append(broker)
    return found
