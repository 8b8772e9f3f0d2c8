"""Finds the replicas that an `ottla cleaner` command names, and sends requests to their brokers
concurrently."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import trio

from ottla.cli.common import counted
from ottla.cli.outcomes import meaning_of
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

BROKER_TIMEOUT_S = 10.0
"""Maximum seconds that `ottla cleaner` waits for the response of one broker. The responses of the
other brokers are shown even if one broker is slower."""

PARTITION_DIGITS = 9

T = TypeVar("T")


class NamedLogs(NamedTuple):
    """Logs that a command names as `TOPIC[:PARTITION]`. If the partition is None, the name stands
    for all partitions of the topic."""

    topic: str
    partition: int | None


class BrokerAnswer(NamedTuple, Generic[T]):
    """Response of one broker to a request, or the error message if the request failed."""

    broker: NodeId
    answer: T | None
    failure: str = ""


def parse_named(text: str) -> NamedLogs:
    """Return the topic and partition in a text of the form TOPIC[:PARTITION]. If the text has no
    partition, the partition is None. Raises ConfigError if the text has another form."""
    topic, colon, index = text.rpartition(":")
    if not colon:
        return NamedLogs(text, None)
    if not topic or not index.isdecimal() or len(index) > PARTITION_DIGITS:
        raise ConfigError(
            "TOPIC[:PARTITION]", f"is {text!r}; it must be a topic, or a topic, ':' and a number"
        )
    return NamedLogs(topic, int(index))


async def replicas_of(
    admin: Admin, texts: Sequence[str], only: int | None
) -> Mapping[NodeId, set[TopicPartition] | None]:
    """Return the replicas that an `ottla cleaner` command names, by broker. None as a value means
    all replicas of that broker.

    Raises RefusedError if a topic, one of its partitions or the broker `only` does not exist.
    """
    brokers = (await admin.describe_cluster(has_fenced=True)).brokers
    present = sorted(one.node for one in brokers)
    if only is not None and only not in present:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"there is no broker {only} in this cluster; see 'ottla broker list'",
        )
    named = await _named_replicas(admin, [parse_named(text) for text in texts]) if texts else []
    for one in brokers:  # metadata lists no fenced brokers
        admin.cluster.learn_address(one.node, one.host, one.port)
    if not texts:
        return {broker: None for broker in present if only in (None, broker)}
    found: dict[NodeId, set[TopicPartition]] = defaultdict(set)
    for at, holders in named:
        for broker in holders:
            if only in (None, broker):
                found[NodeId(broker)].add(at)
    if not found:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"broker {only} has no replica of {', '.join(texts)}",
        )
    return dict(sorted(found.items()))


async def _named_replicas(
    admin: Admin, named: Sequence[NamedLogs]
) -> list[tuple[TopicPartition, list[int]]]:
    answer = await admin.cluster.metadata(sorted({one.topic for one in named}))
    holders: dict[TopicPartition, list[int]] = {}
    for topic in answer.topics:
        raise_for(topic.error_code, f"topic {topic.name!r}: {meaning_of(topic.error_code)}")
        for row in topic.partitions:
            at = TopicPartition(topic.name or "", row.partition_index)
            holders[at] = list(row.replica_nodes)
    return [(at, holders[at]) for one in named for at in _partitions(one, holders)]


def _partitions(
    one: NamedLogs, holders: Mapping[TopicPartition, list[int]]
) -> Iterable[TopicPartition]:
    if one.partition is None:
        return [at for at in holders if at.topic == one.topic]
    at = TopicPartition(one.topic, one.partition)
    if at not in holders:
        count = sum(known.topic == one.topic for known in holders)
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {one.topic!r} has no partition {one.partition}; "
            f"it has {counted(count, 'partition')}, from 0",
        )
    return [at]


async def ask_each(
    brokers: Iterable[NodeId], ask: Callable[[NodeId], Awaitable[T]]
) -> list[BrokerAnswer[T]]:
    """Send a request to several brokers concurrently. Returns a BrokerAnswer for each broker, in
    order of ids. If a broker fails or is too slow, its BrokerAnswer has a `failure`."""
    found: dict[NodeId, BrokerAnswer[T]] = {}

    async def ask_one(broker: NodeId) -> None:
        try:
            with trio.fail_after(BROKER_TIMEOUT_S):
                found[broker] = BrokerAnswer(broker, await ask(broker))
        except trio.TooSlowError:
            failure = f"broker {broker} did not answer in {BROKER_TIMEOUT_S:g} s"
            found[broker] = BrokerAnswer(broker, None, failure)
        except OttlaError as error:
            found[broker] = BrokerAnswer(broker, None, f"broker {broker}: {error}")

    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(ask_one, broker)
    return [answer for _, answer in sorted(found.items())]


def named_refusal(at: TopicPartition, broker: NodeId, refusal: RefusedError) -> RefusedError:
    """Return a broker's refusal with an error message that names the refused partition, or the
    topic if the whole topic is refused."""
    if refusal.code is ErrorCode.INVALID_REQUEST:
        return not_compacted(at.topic)
    return RefusedError(refusal.code, f"{at} on broker {broker}: {refusal.message}")


def not_compacted(topic: str) -> RefusedError:
    """Return the error for a topic that is not compacted, with a remedy in its message."""
    return RefusedError(
        ErrorCode.INVALID_REQUEST,
        f"topic {topic!r} is not compacted; 'ottla config set --topic {topic} "
        "cleanup.policy=compact' makes it so",
    )
