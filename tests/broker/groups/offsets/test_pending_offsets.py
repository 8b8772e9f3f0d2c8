"""Offsets of transactions, against a reading of the whole log at every step."""

import random
from dataclasses import dataclass

import pytest

from ottla.broker.coordinators.effects import Outbox
from ottla.broker.groups.offsets.committed_offsets import PENDING, UNSTABLE, CommittedOffset
from ottla.broker.groups.offsets.offset_store import OffsetStore
from ottla.wire.messages.offset_commit_key import OffsetCommitKey

GROUPS = ("g", "h")
PRODUCERS = (7, 8, 9)
INDEXES = (0, 1)


@dataclass
class LogEntry:
    """One entry of the log: a commit, a tombstone, or a transaction's end."""

    producer_id: int = -1
    group: str = ""
    index: int = 0
    offset: int | None = None
    is_end: bool = False
    is_commit: bool = False


def end_of(log: list[LogEntry], at: int) -> LogEntry | None:
    """Return how the transaction of an entry ended."""
    for later in log[at + 1 :]:
        if later.is_end and later.producer_id == log[at].producer_id:
            return later
    return None


def offset_in(log: list[LogEntry], group: str, index: int) -> int | None:
    """Return the committed offset: that of the last entry that counts."""
    for at in range(len(log) - 1, -1, -1):
        one = log[at]
        if one.is_end or (one.group, one.index) != (group, index):
            continue
        if one.producer_id == -1:
            return one.offset
        end = end_of(log, at)
        if end is not None and end.is_commit:
            return one.offset
    return None


def is_pending_in(log: list[LogEntry], group: str, index: int) -> bool:
    """Return whether an open transaction has committed the place since its last tombstone."""
    for at in range(len(log) - 1, -1, -1):
        one = log[at]
        if one.is_end or (one.group, one.index) != (group, index):
            continue
        if one.producer_id == -1 and one.offset is None:
            return False
        if one.producer_id != -1 and end_of(log, at) is None:
            return True
    return False


def apply(store: OffsetStore, one: LogEntry) -> None:
    if one.is_end:
        store.end_transaction(one.producer_id, is_commit=one.is_commit)
        return
    key = OffsetCommitKey(group=one.group, topic="orders", partition=one.index)
    said = None if one.offset is None else CommittedOffset(one.offset).as_value()
    store.replay(key, said, one.producer_id)


def drawn(chance: random.Random, offset: int) -> LogEntry:
    kind = chance.random()
    if kind < 0.3:
        return LogEntry(
            producer_id=chance.choice(PRODUCERS), is_end=True, is_commit=chance.random() < 0.6
        )
    group, index = chance.choice(GROUPS), chance.choice(INDEXES)
    if kind < 0.4:
        return LogEntry(group=group, index=index)
    producer_id = chance.choice(PRODUCERS) if kind < 0.8 else -1
    return LogEntry(producer_id, group, index, offset)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_committed_is_what_the_whole_log_says(seed: int) -> None:
    chance = random.Random(seed)
    store = OffsetStore(Outbox(), 4_096)
    log: list[LogEntry] = []
    seen = set()
    for offset in range(200):
        log.append(drawn(chance, offset))
        apply(store, log[-1])
        for group in GROUPS:
            for index in INDEXES:
                found = store.committed.find(group, "orders", index)
                expected = offset_in(log, group, index)
                assert (None if found is None else found.offset) == expected
                is_pending = is_pending_in(log, group, index)
                assert store.pending.is_pending(group, "orders", index) is is_pending
                ((_, _, stable),) = store.find_all(group, [("orders", index)], is_stable=True)
                if not is_pending:
                    assert stable == found
                else:
                    assert stable is (PENDING if found is None else UNSTABLE)
                seen.add((is_pending, found is None))
            some = any(
                is_pending_in(log, group, index) or offset_in(log, group, index) is not None
                for index in INDEXES
            )
            assert store.has_group(group) is some
            assert (group in set(store.group_ids)) is some
    assert len(seen) == 4
