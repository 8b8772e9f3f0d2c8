"""Fuzz target: input of group coordinators (records of `__consumer_offsets`, embedded
subscriptions, regular expressions).

After any log has been replayed, the groups must still be able to serve requests, to expire, and to
write records.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random
from typing import Any

from ottla.broker.coordinators.effects import CoordinatorRecord, EventWrite, Instant, Responder
from ottla.broker.coordinators.performer import perform
from ottla.broker.groups.consumer.embedded_protocol import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from ottla.broker.groups.consumer.subscription_regex import compile_topic_regex, matches
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.group_records import KINDS
from ottla.broker.groups.shard import GroupShard
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.jepsen.fuzz.targets.batches import NOW_MS
from ottla.jepsen.fuzz.targets.metadata import BASE
from ottla.metadata.delta import MetadataDelta
from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.settings.group_overrides import GroupSettings
from ottla.model.settings.groups import GroupConfig
from ottla.wire.codec import encode
from ottla.wire.codec_examples import example
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

RECORDS_MAX = 40
"""Maximum number of log records in one fuzzing input. Longer inputs find no further errors."""

DAY_MS = 24 * 3_600_000
NAMES = ("t", "topic-1", "a" * 200, "orders.eu", "x-" * 100)
NULL_LENGTH = 0xFFFF


def _topics() -> TopicView:
    topics = TopicView()
    topics.follow(MetadataDelta(BASE), BASE)
    return topics


def _shard() -> GroupShard:
    numbers = count()
    return GroupShard(
        GroupConfig(initial_rebalance_delay_ms=0),
        topics=_topics(),
        settings=lambda _: GroupSettings(),
        new_id=lambda: str(next(numbers)),
    )


class _WrittenRecords:
    """Ports of a coordinator shard for the fuzz target. They store the written records. No request
    waits, and no other work is pending."""

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []

    def answer(self, responder: Responder, answer: Any) -> None:
        """Send a coordinator's response immediately."""
        responder(answer)

    def append(
        self, writes: Sequence[EventWrite], answers: Sequence[tuple[Responder, Any]]
    ) -> None:
        """Store the records that the coordinator shard writes. They count as committed at once."""
        self.records += [record for write in writes for record in write]
        for responder, answer in answers:
            responder(answer)

    def send(self, order: Any) -> None:
        """Raise an error, since group coordinators send nothing to other brokers."""
        raise AssertionError(order)

    def wake(self, key: str) -> None:
        """Raise an error, since no request in a group coordinator waits for a transactional id."""
        raise AssertionError(key)

    def wake_at(self, deadline_ms: int | None) -> None:
        """Ignore the request for a timer. The fuzz target reads the shard's deadline instead."""

    def work_soon(self) -> None:
        """Ignore the request to run work later. The fuzz target runs the shard's work itself."""


def _log(data: bytes) -> None:
    shard, written = _shard(), _WrittenRecords()
    for key, value in _records_of(data):
        shard.replay(key, value)
    shard.resume(Instant(1_000, NOW_MS))
    for later_ms in (1_000, 400_000, DAY_MS):
        now = Instant(1_000 + later_ms, NOW_MS + later_ms)
        for _ in range(2 * RECORDS_MAX):
            due_ms = shard.next_deadline_ms()
            if due_ms is None or due_ms > now.mono_ms:
                break
            shard.on_time(now)
        shard.on_topics(frozenset({"t"}), now)
        _work_off(shard, now)
        perform(shard.take_effects(), written)
    later = Instant(1_000 + 30 * DAY_MS, NOW_MS + 30 * DAY_MS)
    shard.expire_offsets(later)
    _work_off(shard, later)
    perform(shard.take_effects(), written)
    shard.list_groups(frozenset(), frozenset())
    again = _shard()
    for key, value in written.records:
        again.replay(key, value)


def _work_off(shard: GroupShard, now: Instant) -> None:
    while shard.has_work:
        shard.work(now)


def _records_of(data: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    at = 0
    for _ in range(RECORDS_MAX):
        if at >= len(data):
            return
        key, at = _part(data, at)
        value, at = _part(data, at)
        yield key, value


def _part(data: bytes, at: int) -> tuple[bytes | None, int]:
    length = int.from_bytes(data[at : at + 2])
    at += 2
    return (None, at) if length == NULL_LENGTH else (data[at : at + length], at + length)


def _as_parts(*records: tuple[bytes, bytes | None]) -> bytes:
    return b"".join(
        (NULL_LENGTH.to_bytes(2) if one is None else len(one).to_bytes(2) + one)
        for record in records
        for one in record
    )


def _words(data: bytes) -> None:
    topics = _topics()
    read_subscription(data)
    assigned = read_assignment(data, topics)
    again = assignment_bytes(assigned, data, topics)
    assert read_assignment(again, topics) == assigned


def _regex(data: bytes) -> None:
    try:
        text = data.decode()
        regex = compile_topic_regex(text)
    except (UnicodeDecodeError, RefusedError):
        return
    assert matches(regex, NAMES) <= set(NAMES)


def _good_logs(random: Random) -> Iterator[bytes]:
    rng = FuzzRng(random)
    pairs: list[tuple[bytes, bytes | None]] = []
    for kind, (key_type, value_type) in KINDS.items():
        for version in value_type.VERSIONS:
            key = kind.to_bytes(2) + encode(key_type(), 0)
            value = version.to_bytes(2) + encode(value_type(), version)
            pairs.append((key, value))
            yield _as_parts((key, value))
            yield _as_parts((key, value), (key, None))
            other = version.to_bytes(2) + encode(example(value_type, version, rng), version)
            if len(other) < 1_000:
                pairs.append((key, other))
                yield _as_parts((key, other))
    for _ in range(20):
        yield _as_parts(*random.sample(pairs, 6))


def _good_words(random: Random) -> Iterator[bytes]:
    rng = FuzzRng(random)
    for message in (ConsumerProtocolSubscription, ConsumerProtocolAssignment):
        for version in message.VERSIONS:
            for value in (message(), example(message, version, rng)):
                yield version.to_bytes(2) + encode(value, version)


GOOD_REGEXES = (
    b"t.*",
    b"(a|b)+c?[^x-z]{2,5}\\d\\pL$",
    b"^(?i:orders)\\.(eu|us)(?P<name>.)$",
    b".{200}",
    b"((a{10}){10}){10}",
    b"(.*)(.*)(.*)(.*)x",
    b"(x-)*(x-)*$",
    b"[[:alpha:]]|\\x{10FFFF}|\\Qa.b\\E",
)

READERS: tuple[Callable[[bytes], None], ...] = (_log, _words, _regex)


def _check(data: bytes) -> None:
    READERS[number_of(data, len(READERS))](data[2:])


def _seeds(random: Random) -> Iterator[bytes]:
    return numbered((_good_logs(random), _good_words(random), GOOD_REGEXES))


def _name_of(data: bytes) -> str:
    return READERS[number_of(data, len(READERS))].__name__.strip("_")


GROUPS = FuzzTarget(
    name="groups",
    sentence="records of __consumer_offsets, members' subscriptions and assignments, regexes",
    check=_check,
    seeds=_seeds,
    refusals=(CorruptDataError,),
    name_of=_name_of,
)
