"""Throttles of moves, set in the cluster and removed from it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.cli.cluster.throttles import (
    LISTS,
    RATES,
    LeftOver,
    ReassignmentThrottle,
    SetLists,
    left_over,
)
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import Append, ConfigChange, ConfigResource, Subtract
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.model.settings.throttled_replicas import ThrottledReplicas, throttled_replicas

TOPICS_AT_ONCE = 500
"""Topics whose lists are asked for in one request."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed."""

    topics: tuple[str, ...]
    """Topics whose lists name fewer replicas, or none."""
    brokers: tuple[NodeId, ...]
    """Brokers without a rate of their own any more."""
    every: tuple[str, ...]
    """Topics that throttle every replica, and go on doing so."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.brokers)


async def set_throttle(admin: Admin, throttle: ReassignmentThrottle, rate: int) -> None:
    """Set rates, then lists; what is in a list already stays in it."""
    await set_rates(admin, throttle.brokers, RATES, rate)
    for found in await lists_of(admin, list(throttle.lists)):
        changes = {
            key: Append(str(replicas))
            for key, replicas in throttle.lists[found.topic].items()
            if replicas and not found.lists[key].is_all
        }
        if changes:
            await admin.alter_topic_configs(found.topic, changes)


async def lists_of(admin: Admin, topics: Sequence[str]) -> list[SetLists]:
    """Return the lists of topics; one that is gone meanwhile is left out."""
    found = []
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        asked = [ConfigResource(ConfigKind.TOPIC, name) for name in topics[at:][:TOPICS_AT_ONCE]]
        for resource, entries in (await admin.try_describe_configs(asked, keys=LISTS)).items():
            if isinstance(entries, RefusedError):
                if entries.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                raise entries
            lists = {key: throttled_replicas(entries[key].value or "") for key in LISTS}
            found.append(SetLists(resource.name, lists))
    return found


async def remove_unneeded(
    admin: Admin,
    topics: Sequence[str],
    moving: Collection[TopicPartition],
    *,
    known: Mapping[str, Mapping[str, ThrottledReplicas]],
) -> Removed:
    """Take out of lists what does not move, and, where nothing moves, the brokers' rates.

    `moving` are all partitions under way, whatever their topics; `known` was set a moment ago, and
    the broker that answers may not have heard of it.
    """
    found = [
        SetLists(one.topic, _together(one.lists, known.get(one.topic, {})))
        for one in await lists_of(admin, topics)
    ]
    left = left_over(found, moving)
    for topic in left.removals:
        await admin.alter_topic_configs(topic, _changes(left, topic))
    brokers = [] if moving else await with_rates(admin, RATES)
    await remove_rates(admin, brokers, RATES)
    return Removed(tuple(left.removals), tuple(brokers), tuple(left.every))


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
    """Set rates at brokers; one that is down is left out, since it alone takes its settings."""
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
    """Give rates of brokers their defaults back."""
    changes: Mapping[str, ConfigChange] = dict.fromkeys(keys)
    for broker in brokers:
        await admin.alter_broker_configs(broker, changes)


def _changes(left: LeftOver, topic: str) -> dict[str, ConfigChange]:
    return {
        key: None if (topic, key) in left.emptied else Subtract(str(replicas))
        for key, replicas in left.removals[topic].items()
    }


async def with_rates(admin: Admin, keys: Collection[str]) -> list[NodeId]:
    """Return the brokers that have one of these rates set for themselves."""
    found = []
    for broker in await _alive(admin):
        entries = await admin.describe_configs(
            ConfigResource(ConfigKind.BROKER, str(broker)), keys=keys
        )
        if any(entry.source is ConfigSource.BROKER for entry in entries.values()):
            found.append(broker)
    return found
