"""Requests descriptions of the log directories of several brokers, concurrently
(DescribeLogDirs)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from ottla.client.admin_parts.admin_brokers import BrokerCalls, LogDirDescription
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

BROKER_TIMEOUT_S = 10.0
"""Maximum wait, in seconds, for one broker's description of its log directories. A broker with a
hundred thousand replicas responds within a second."""

LIST_TIMEOUT_S = 3.0
"""Maximum wait, in seconds, for one broker's log directories in commands that list brokers or
topics. If a broker hangs, the sizes from the other brokers are shown."""


@dataclass(slots=True)
class BrokerDirectories:
    """Log directories of one broker, or the reason why they are unknown."""

    broker: NodeId
    failure: str = ""
    directories: list[LogDirDescription] = field(default_factory=list)

    @property
    def size_bytes(self) -> int | None:
        """Size of all replicas of the broker in bytes, or None if it is unknown."""
        if self.failure:
            return None
        replicas = (one for directory in self.directories for one in directory.replicas.values())
        return sum(replica.size_bytes for replica in replicas)


async def ask(
    admin: BrokerCalls,
    brokers: Sequence[NodeId] = (),
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_s: float = BROKER_TIMEOUT_S,
) -> list[BrokerDirectories]:
    """Describe the log directories of the given brokers, or of all brokers, concurrently. If a
    broker does not respond, the responses of the other brokers are still returned.

    Raises RefusedError if a broker does not belong to the cluster.
    """
    present = sorted(one.node for one in (await admin.describe_cluster(has_fenced=True)).brokers)
    for broker in brokers:
        if broker not in present:
            raise RefusedError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"there is no broker {broker} in this cluster; see 'ottla broker list'",
            )
    wanted = None if partitions is None else list(partitions)
    found = [BrokerDirectories(broker) for broker in brokers or present]
    async with trio.open_nursery() as nursery:
        for one in found:
            nursery.start_soon(_ask_one, admin, one, wanted, timeout_s)
    return found


async def ask_for_replicas(
    admin: BrokerCalls,
    partitions_of: Mapping[NodeId, Sequence[TopicPartition]],
    *,
    timeout_s: float = BROKER_TIMEOUT_S,
) -> list[BrokerDirectories]:
    """Describe the log directories of several brokers concurrently, each with the given partitions
    only. If a broker does not respond, the responses of the other brokers are still returned."""
    found = [BrokerDirectories(broker) for broker in sorted(partitions_of)]
    async with trio.open_nursery() as nursery:
        for one in found:
            nursery.start_soon(_ask_one, admin, one, list(partitions_of[one.broker]), timeout_s)
    return found


async def ask_bytes(admin: BrokerCalls) -> list[BrokerDirectories]:
    """Return the log directories of all brokers, as `ask` does, with timeout LIST_TIMEOUT_S."""
    return await ask(admin, timeout_s=LIST_TIMEOUT_S)


async def _ask_one(
    admin: BrokerCalls,
    one: BrokerDirectories,
    partitions: list[TopicPartition] | None,
    timeout_s: float,
) -> None:
    try:
        with trio.fail_after(timeout_s):
            one.directories = await admin.describe_log_dirs(one.broker, partitions)
    except trio.TooSlowError:
        one.failure = f"no answer in {timeout_s:g} s"
    except OttlaError as error:
        one.failure = str(error)
