"""Walks of three replicas over two tiers, and planted bugs that such walks find."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.ids import Epoch, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier import copy_plan, expiry_plan, local_plan
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.expiry_plan import DeleteSegment, ExpiryInput, ExpiryStep
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteRecord,
    RemoteSegment,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)
from tests.storage.tier.tier_world import ACTIONS, Decisions, InvariantError, Step, run_walk

WALKS, WALKS_OF_BUGS, STEPS = 100, 1_500, 120
SITUATIONS = {
    "bootstrap from the tier",
    "copy of a deposed leader",
    "expiry",
    "forgotten epochs",
    "local deletion",
    "lost finish",
    "refused record",
    "remote read",
    "truncation",
    "unclean election",
}

steps = st.tuples(st.integers(0, len(ACTIONS) - 1), st.integers(0, 2), st.integers(1, 6))


def walk_of(seed: int) -> list[Step]:
    rng = Random(seed)
    return [
        (rng.randrange(len(ACTIONS)), rng.randrange(3), rng.randint(1, 6)) for _ in range(STEPS)
    ]


def test_walks_keep_the_invariants_and_meet_every_situation() -> None:
    seen: set[str] = set()
    for seed in range(WALKS):
        seen |= run_walk(walk_of(seed)).seen
    assert seen >= SITUATIONS


@given(st.lists(steps, max_size=60))
@settings(max_examples=60)
def test_drawn_walks_keep_the_invariants(walk: list[Step]) -> None:
    run_walk(walk)


def _copied_by_started(
    metadata: RemoteMetadata, lineage: Lineage, *, local_log_start_offset: Offset
) -> Offset:
    """Bug: local segments are deleted before their copies are finished."""
    ends = [
        segment.end_offset
        for segment in metadata.all_segments()
        if segment.state is RemoteSegmentState.COPY_STARTED and lineage.contains(segment)
    ]
    copied = copy_plan.copied_offset(
        metadata, lineage, local_log_start_offset=local_log_start_offset
    )
    return max([copied, *ends])


def _copied_by_offset(
    metadata: RemoteMetadata, lineage: Lineage, *, local_log_start_offset: Offset
) -> Offset:
    """Bug: the leader epochs of copied segments are ignored."""
    ends = [
        segment.end_offset
        for segment in metadata.all_segments()
        if segment.state is RemoteSegmentState.COPY_FINISHED
    ]
    return max(ends, default=Offset(-1))


def _copy_up_to_the_end(
    segments: Sequence[LocalSegment], epochs: Sequence[EpochEntry], **others: Any
) -> list[LocalSegment]:
    """Bug: records above the last stable offset are copied."""
    others["last_stable_offset"] = segments[-1].end_offset
    return copy_plan.segments_to_copy(segments, epochs, **others)


def _newest_epoch_only(
    segment: LocalSegment, epochs: Sequence[EpochEntry]
) -> tuple[EpochEntry, ...]:
    """Bug: a copy lists only the leader epoch of the leader that made it."""
    return (EpochEntry(epochs[-1].epoch, segment.base_offset),)


def _whole_segment(lineage: Lineage, segment: RemoteSegment, offset: Offset) -> Offset:
    """Bug: a reader goes on to the segment's end, over the end of the lineage."""
    return Offset(segment.end_offset + 1)


def _without(step_type: type, log: ExpiryInput) -> list[ExpiryStep]:
    return [step for step in expiry_plan.plan_expiry(log) if not isinstance(step, step_type)]


def _no_log_start(log: ExpiryInput) -> list[ExpiryStep]:
    """Bug: the log start does not move when segments expire."""
    return _without(expiry_plan.MoveLogStart, log)


def _any_older_epoch(log: ExpiryInput) -> list[ExpiryStep]:
    """Bug: one forgotten leader epoch is enough to delete a segment."""
    oldest = log.epochs[0].epoch if log.epochs else -1
    return [
        *expiry_plan.plan_expiry(log),
        *(
            DeleteSegment(segment, "planted")
            for segment in log.metadata.all_segments()
            if any(entry.epoch < oldest for entry in segment.leader_epochs)
            and segment.end_offset >= log.log_start_offset
        ),
    ]


def _other_lineages(log: ExpiryInput) -> list[ExpiryStep]:
    """Bug: segments of other lineages are deleted like abandoned copies, even if look-ups find
    records of this log in them."""
    return [
        *expiry_plan.plan_expiry(log),
        *(
            DeleteSegment(segment, "planted")
            for segment in log.metadata.all_segments()
            if not log.lineage.contains(segment) and segment.end_offset >= log.log_start_offset
        ),
    ]


def _all_states_count(log: ExpiryInput) -> list[ExpiryStep]:
    """Bug: every known segment counts as size, in any state (KAFKA-17062)."""
    extra = sum(segment.size_bytes for segment in log.metadata.all_segments())
    bound = max(0, log.retention_bytes - extra) if log.retention_bytes >= 0 else -1
    return expiry_plan.plan_expiry(replace(log, retention_bytes=bound))


def _both_tiers_count(log: ExpiryInput) -> list[ExpiryStep]:
    """Bug: local segments that are copied count twice (KAFKA-20732)."""
    if log.retention_bytes < 0:
        return expiry_plan.plan_expiry(log)
    local = sum(segment.size_bytes for segment in log.local_segments)
    return expiry_plan.plan_expiry(
        replace(log, retention_bytes=max(0, log.retention_bytes - local))
    )


def _local_without_copy(
    segments: Sequence[LocalSegment], **others: Any
) -> local_plan.LocalDeletion:
    """Bug: local segments are deleted without being copied."""
    others["copied_offset"] = Offset(1_000_000)
    return local_plan.plan_local_deletion(segments, **others)


class _LateFinish(RemoteMetadata):
    """Bug: the late record of a deposed leader revives a segment that is being deleted."""

    def apply(self, record: RemoteRecord) -> str | None:
        known = self.get(record.id)
        if (
            isinstance(record, RemoteSegmentUpdate)
            and record.state is RemoteSegmentState.COPY_FINISHED
            and known is not None
            and known.state is RemoteSegmentState.DELETE_STARTED
        ):
            self._segments[record.id] = replace(known, state=RemoteSegmentState.COPY_STARTED)
        return super().apply(record)


class _FinishedAtStart(RemoteMetadata):
    """Bug: a segment is readable from the start of its copy on."""

    def apply(self, record: RemoteRecord) -> str | None:
        refusal = super().apply(record)
        if isinstance(record, RemoteSegment) and refusal is None:
            finished = RemoteSegmentState.COPY_FINISHED
            super().apply(RemoteSegmentUpdate(record.id, 0, None, finished, record.broker_id))
        return refusal


class _AnyEpoch(RemoteMetadata):
    """Bug: a look-up by offset ignores the leader epoch."""

    def find(self, epoch: Epoch, offset: Offset) -> RemoteSegment | None:
        for segment in self.all_segments():
            is_finished = segment.state is RemoteSegmentState.COPY_FINISHED
            if is_finished and segment.start_offset <= offset <= segment.end_offset:
                return replace(segment, leader_epochs=(EpochEntry(epoch, segment.start_offset),))
        return None


PLANTED: dict[str, Decisions] = {
    "local segments are deleted before the end of their copy": Decisions(
        copied_offset=_copied_by_started
    ),
    "leader epochs are ignored by local deletion": Decisions(copied_offset=_copied_by_offset),
    "local segments are deleted without a copy": Decisions(local_deletion=_local_without_copy),
    "records above the last stable offset are copied": Decisions(
        segments_to_copy=_copy_up_to_the_end
    ),
    "a copy lists the epoch of its leader only": Decisions(epochs_of=_newest_epoch_only),
    "a reader leaves the lineage": Decisions(shared_end_offset=_whole_segment),
    "the log start moves after the deletion": Decisions(deletes_objects_first=True),
    "the log start does not move": Decisions(plan_expiry=_no_log_start),
    "one forgotten epoch is enough": Decisions(plan_expiry=_any_older_epoch),
    "segments of other lineages are deleted": Decisions(plan_expiry=_other_lineages),
    "all known segments count as size": Decisions(plan_expiry=_all_states_count),
    "records in both tiers count twice": Decisions(plan_expiry=_both_tiers_count),
    "a late finish revives a segment": Decisions(make_metadata=_LateFinish),
    "a segment is readable before its copy ends": Decisions(make_metadata=_FinishedAtStart),
    "a look-up ignores the leader epoch": Decisions(make_metadata=_AnyEpoch),
}


RARELY_FOUND = {
    "the log start moves after the deletion": 1_000,
    "one forgotten epoch is enough": 590,
    "a late finish revives a segment": 1_100,
}
"""Seeds shortly before the first one that finds the bug, for bugs that one walk in some hundred
finds."""


@pytest.mark.parametrize("bug", PLANTED)
def test_walks_find_each_planted_bug(bug: str) -> None:
    first = RARELY_FOUND.get(bug, 0)
    for seed in range(first, first + WALKS_OF_BUGS):
        try:
            run_walk(walk_of(seed), PLANTED[bug])
        except InvariantError:
            return
    pytest.fail(f"{WALKS_OF_BUGS} walks do not find that {bug}")
