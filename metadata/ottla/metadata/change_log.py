"""Writes log lines about changes in the cluster: brokers, leaders, in-sync replicas.

`ChangeLog` is a publisher. For each new image it logs one line about leaders and one about in-sync
replicas, for any number of changed partitions. The active controller logs all changes. Any other
node logs only changes that concern itself, so that a change is not logged by every node.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.log_events import event

_LOGGER = logging.getLogger("ottla.metadata.changes")

NAMED_MAX = 5
"""Maximum number of partitions that a line of the change log names. Further partitions are only
counted."""


THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Broker settings that throttle replication."""


class LoggedChange(NamedTuple):
    """The content of one line of the change log: the event's name, the text, and its fields."""

    event: str
    message: str
    fields: dict[str, object]


class ChangeLog:
    """Log of changes in the cluster's metadata, written by one node. For the first metadata image
    that the node receives, it logs only the numbers of brokers and topics."""

    def __init__(self, node_id: NodeId, is_active_controller: Callable[[], bool]) -> None:
        self._node_id = node_id
        self._is_active_controller = is_active_controller
        self._is_introduced = False

    @property
    def name(self) -> str:
        """Name of the change log as a metadata publisher, in error reports."""
        return "log of changes"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Log the changes of the cluster that the delta lists. For the first image, log only its
        numbers of brokers and topics."""
        if not _LOGGER.isEnabledFor(logging.INFO):
            return
        only = None if self._is_active_controller() else self._node_id
        changes = _changes(delta, image, only) if self._is_introduced else [_loaded(image)]
        self._is_introduced = True
        for change in changes:
            _LOGGER.info("%s", change.message, extra=event(change.event, **change.fields))


def _loaded(image: MetadataImage) -> LoggedChange:
    brokers, topics = len(image.brokers), len(image.topics)
    message = f"the cluster has {_count(brokers, 'broker')} and {_count(topics, 'topic')}"
    return LoggedChange("metadata.loaded", message, {"brokers": brokers, "topics": topics})


def _changes(
    delta: MetadataDelta, image: MetadataImage, only: NodeId | None
) -> Iterator[LoggedChange]:
    """Yield the log lines about the differences between two metadata images, which `delta` lists.

    If `only` is a node id, yields only the lines that concern that node.
    """
    for node_id in delta.changed_brokers:
        if only not in (None, node_id):
            continue
        before, after = delta.base.brokers.get(node_id), image.brokers.get(node_id)
        for name, message in _of_broker(before, after):
            yield LoggedChange(name, f"broker {node_id} {message}", {"broker": int(node_id)})
    yield from _of_throttles(delta, image, only)
    yield from _of_partitions(delta, image, only)


def _of_broker(
    before: BrokerRegistration | None, after: BrokerRegistration | None
) -> Iterator[tuple[str, str]]:
    if after is None:
        if before is not None:
            yield "broker.unregistered", "was removed from the cluster"
        return
    is_new = before is None or before.epoch != after.epoch
    if is_new:
        where = ", ".join(f"{one.name}://{one.host}:{one.port}" for one in after.endpoints)
        yield "broker.registered", f"registered with {where}"
    if after.in_controlled_shutdown and (is_new or not _is_stopping(before)):
        yield "broker.stopping", "stops in order: its leaderships move away"
    was_fenced = before is None or before.is_fenced
    if was_fenced and not after.is_fenced:
        yield "broker.unfenced", "serves"
    elif before is not None and not before.is_fenced and after.is_fenced:
        yield "broker.fenced", "is fenced: it stopped, or its heartbeats do not arrive"


def _is_stopping(broker: BrokerRegistration | None) -> bool:
    return broker is not None and broker.in_controlled_shutdown


def _of_throttles(
    delta: MetadataDelta, image: MetadataImage, only: NodeId | None
) -> Iterator[LoggedChange]:
    for kind, name in delta.changed_configs:
        if kind != BROKER_RESOURCE or only not in (None, *_node_of(name)):
            continue
        before, after = delta.base.config(kind, name), image.config(kind, name)
        broker = f"broker {name}" if name else "every broker"
        for key in THROTTLES:
            rate = after.get(key)
            if before.get(key) == rate:
                continue
            now = "removed" if rate is None else f"{rate} bytes a second"
            yield LoggedChange(
                "throttle.changed", f"{key} of {broker}: {now}", {"key": key, "rate": rate}
            )


def _node_of(name: str) -> tuple[NodeId, ...]:
    return (NodeId(int(name)),) if name.isdecimal() else ()


def _of_partitions(
    delta: MetadataDelta, image: MetadataImage, only: NodeId | None
) -> Iterator[LoggedChange]:
    led: list[str] = []
    in_sync: list[str] = []
    leaderless = shrunk = 0
    for key in delta.changed_partitions:
        before, after = delta.base.partition(key), image.partition(key)
        if before is None or after is None:
            continue  # created: neither leader nor replicas changed
        if only is not None and only not in (before.leader, after.leader):
            continue
        name = f"{image.topics[key.topic_id].name}-{key.partition}"
        if before.leader != after.leader:
            leaderless += after.leader == NO_NODE
            if len(led) <= NAMED_MAX:
                led.append(f"{name} from {_leader(before.leader)} to {_leader(after.leader)}")
            else:
                led.append("")
        if set(before.isr) != set(after.isr):
            shrunk += len(after.isr) < len(before.isr)
            if len(in_sync) <= NAMED_MAX:
                in_sync.append(f"{name} from {_nodes(before.isr)} to {_nodes(after.isr)}")
            else:
                in_sync.append("")
    if led:
        message = f"leader of {_count(len(led), 'partition')} changed: {_listed(led)}"
        if leaderless:
            message += f"; {leaderless} without a leader"
        yield LoggedChange(
            "partition.leaders", message, {"partitions": len(led), "leaderless": leaderless}
        )
    if in_sync:
        message = f"in-sync replicas of {_count(len(in_sync), 'partition')} changed: "
        yield LoggedChange(
            "partition.isr",
            message + _listed(in_sync),
            {"partitions": len(in_sync), "shrunk": shrunk},
        )


def _leader(node_id: NodeId) -> str:
    return "none" if node_id == NO_NODE else f"broker {node_id}"


def _nodes(ids: tuple[NodeId, ...]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(items: list[str]) -> str:
    more = len(items) - NAMED_MAX
    return "; ".join(items[:NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
