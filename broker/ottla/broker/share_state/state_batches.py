"""Merges changed state batches into the state of a share partition. Pure.

The batches of one state are sorted by offset and do not overlap. Where a changed batch overlaps a
stored batch, each offset keeps the higher pair of delivery count and delivery state (KIP-932). The
result does not depend on the order in which changes arrive, and a repeated change has no effect. A
retried or delayed write therefore cannot revert a later write.
"""

from bisect import bisect_left
from collections.abc import Iterable

from ottla.broker.coordinators.share_persister import NO_START_OFFSET, StateBatch

SINGLE_INSERTS_MAX = 8
"""Maximum number of changed state batches that are inserted one by one. For more batches, the list
is built again, because each insertion moves the rest of the list. A leader usually changes only a
few of its thousands of batches."""

HELD_PER_INSERT = 64
"""Minimum number of stored state batches per changed batch at which changed batches are inserted
one by one, even if there are more than SINGLE_INSERTS_MAX. With tens of thousands of stored
batches, which delayed records can cause, rewriting the list takes longer than the inserts."""


def merge(held: list[StateBatch], changed: Iterable[StateBatch], start_offset: int) -> None:
    """Merge changed state batches into the stored batches, and remove all batches below the start
    offset.

    `held` is changed in place. If the start offset is -1, no batch is removed.
    """
    wanted = [batch for batch in changed if batch.last_offset >= start_offset]
    if len(wanted) > max(SINGLE_INSERTS_MAX, len(held) // HELD_PER_INSERT):
        held[:] = _merged(held, sorted(wanted))
    else:
        for batch in wanted:
            _insert(held, batch)
    if start_offset != NO_START_OFFSET:
        _remove_below(held, start_offset)


def _merged(held: list[StateBatch], changed: list[StateBatch]) -> list[StateBatch]:
    """Return the merge of two lists of state batches, ordered by offset, in one pass.

    Each changed batch is inserted near the end of the result so far.
    """
    merged: list[StateBatch] = []
    at = 0
    for batch in changed:
        while at < len(held) and held[at].first_offset <= batch.last_offset + 1:
            merged.append(held[at])
            at += 1
        _insert(merged, batch)
    merged += held[at:]
    return merged


def _remove_below(held: list[StateBatch], start_offset: int) -> None:
    at = bisect_left(held, start_offset, key=_last_offset_of)
    del held[:at]
    if held and held[0].first_offset < start_offset:
        held[0] = held[0]._replace(first_offset=start_offset)


def _insert(held: list[StateBatch], new: StateBatch) -> None:
    begin = end = bisect_left(held, new.first_offset, key=_last_offset_of)
    pieces: list[StateBatch] = []
    first = new.first_offset
    """Lowest offset of the new state batch that the result does not contain yet."""
    while end < len(held) and held[end].first_offset <= new.last_offset:
        old = held[end]
        if old.first_offset < first:
            pieces.append(old._replace(last_offset=first - 1))
        elif old.first_offset > first:
            pieces.append(new._replace(first_offset=first, last_offset=old.first_offset - 1))
        shared = max(first, old.first_offset), min(new.last_offset, old.last_offset)
        winner = new if _rank(new) > _rank(old) else old
        pieces.append(winner._replace(first_offset=shared[0], last_offset=shared[1]))
        if old.last_offset > new.last_offset:
            pieces.append(old._replace(first_offset=new.last_offset + 1))
        first = shared[1] + 1
        end += 1
    if first <= new.last_offset:
        pieces.append(new._replace(first_offset=first))
    if begin > 0:
        begin -= 1
        pieces.insert(0, held[begin])
    if end < len(held):
        pieces.append(held[end])
        end += 1
    held[begin:end] = _joined(pieces)


def _joined(pieces: list[StateBatch]) -> list[StateBatch]:
    """Return a list of state batches in which adjacent batches with equal delivery state and count
    are joined."""
    joined = [pieces[0]]
    for piece in pieces[1:]:
        last = joined[-1]
        if last.last_offset + 1 == piece.first_offset and _rank(last) == _rank(piece):
            joined[-1] = last._replace(last_offset=piece.last_offset)
        else:
            joined.append(piece)
    return joined


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _last_offset_of(batch: StateBatch) -> int:
    return batch.last_offset
