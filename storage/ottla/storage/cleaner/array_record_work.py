"""Per-record implementation of both passes of a log compaction with numpy, without a Python object
per record.

The interface and the results are those of `PlainRecordWork`, on the same map. Records whose fields
numpy cannot verify are processed by the plain implementation. Header names are not checked: only
the plain implementation rejects a name that is not UTF-8. Pure.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ottla.storage.cleaner.array_offset_map import ArrayOffsetMap, KeyHasher
from ottla.storage.cleaner.record_work import (
    IndexedRecords,
    KeepRule,
    KeptRecords,
    PlainRecordWork,
    is_horizon_passed,
)
from ottla.wire.batch import NO_TIMESTAMP
from ottla.wire.record_fields import Fields, read_fields
from ottla.wire.records import Body

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


class ArrayRecordWork:
    """The per-record implementation of log compaction with numpy, which processes all records of a
    run of batches together."""

    def __init__(self, offset_map: ArrayOffsetMap, hasher: KeyHasher) -> None:
        self.map = offset_map
        self._hasher = hasher
        self._plain = PlainRecordWork(offset_map)

    def index(self, bodies: Sequence[Body], first_offset: int, end_offset: int) -> IndexedRecords:
        """Add the keys of all records with offsets in [first_offset, end_offset) to the offset map.
        Returns the number of records read, and the offset of the first record whose key did not fit
        (None if all fit)."""
        bodies, fields = _fields_of(bodies)
        if fields is None:
            return self._plain.index(bodies, first_offset, end_offset)
        offsets = fields.offsets
        is_wanted = fields.key_bytes >= 0
        if offsets[0] < first_offset or offsets[-1] >= end_offset:
            is_wanted &= (offsets >= first_offset) & (offsets < end_offset)
        key_at, sizes = fields.key_at, fields.key_bytes
        if not is_wanted.all():
            rows = np.flatnonzero(is_wanted)
            key_at, sizes, offsets = key_at[rows], sizes[rows], offsets[rows]
        full_at = self._put(bodies, key_at, sizes, offsets)
        count = len(fields.offsets)
        if full_at is not None:
            count = int(np.searchsorted(fields.offsets, full_at))
        return IndexedRecords(count, full_at)

    def _put(self, bodies: Sequence[Body], key_at: Ints, sizes: Ints, offsets: Ints) -> int | None:
        """Add record keys to the offset map, in groups for which the map has enough room. Returns
        the index of the first key that does not fit, or None if all fit."""
        if not len(offsets):
            return None
        hashes = self._hasher.of_keys(bodies[0].data, key_at, sizes)
        done, count = 0, len(offsets)
        while done < count:
            room = self.map.count_max - self.map.count
            if room <= 0:
                return int(offsets[done])
            upto = min(count, done + room)
            part = hashes._replace(first=hashes.first[done:upto], second=hashes.second[done:upto])
            self.map.put_all(part, offsets[done:upto])
            done = upto
        return None

    def select_kept(self, bodies: Sequence[Body], rule: KeepRule) -> list[KeptRecords]:
        """Return the records of each batch body (the decompressed records of a batch) that the
        compaction keeps. No body may be empty."""
        placed, fields = _fields_of(bodies)
        if fields is None:
            return self._plain.select_kept(bodies, rule)
        counts = np.array([body.header.record_count for body in bodies], dtype=np.int64)
        has_no_value = fields.value_bytes < 0
        is_kept = self._are_kept(placed, fields, counts, has_no_value, rule)
        found = _kept_records(fields, counts, is_kept, has_no_value)
        if placed is not bodies:  # The returned ranges must refer to the bodies' own data.
            found = [
                kept._replace(
                    ranges=[
                        (start + own.start - copy.start, end + own.start - copy.start)
                        for start, end in kept.ranges
                    ]
                )
                for kept, own, copy in zip(found, bodies, placed, strict=True)
            ]
        return found

    def _are_kept(
        self,
        bodies: Sequence[Body],
        fields: Fields,
        counts: Ints,
        has_no_value: Flags,
        rule: KeepRule,
    ) -> Flags:
        offsets = fields.offsets
        has_key = fields.key_bytes >= 0
        if has_key.all():
            hashes = self._hasher.of_keys(bodies[0].data, fields.key_at, fields.key_bytes)
            is_kept: Flags = offsets >= self.map.offsets_of(hashes)
        else:
            is_kept = has_key.copy()
            rows = np.flatnonzero(has_key)
            if len(rows):
                hashes = self._hasher.of_keys(
                    bodies[0].data, fields.key_at[rows], fields.key_bytes[rows]
                )
                is_kept[rows] = offsets[rows] >= self.map.offsets_of(hashes)
        if has_no_value.any():
            is_passed = [is_horizon_passed(body.header, rule.now_ms) for body in bodies]
            if any(is_passed):
                is_kept &= ~(has_no_value & np.repeat(np.array(is_passed), counts))
        if offsets[0] < rule.log_start_offset:
            is_kept &= offsets >= rule.log_start_offset
        if offsets[-1] >= rule.clean_to:
            is_kept |= offsets >= rule.clean_to
        return is_kept


def _fields_of(bodies: Sequence[Body]) -> tuple[Sequence[Body], Fields | None]:
    """Parse the fields of all records in the batch bodies. Returns the bodies, moved into one
    buffer, and the fields.

    The fields are None if the records cannot be verified or if offsets do not ascend.
    """
    data = bodies[0].data
    placed = bodies
    if any(body.data is not data for body in bodies):
        data = b"".join([memoryview(body.data)[body.start : body.end] for body in bodies])
        placed, at = [], 0
        for body in bodies:
            placed.append(Body(body.header, data, at, at + body.size_bytes))
            at += body.size_bytes
    fields = read_fields(data, placed)
    if fields is None or not len(fields.offsets):
        return bodies, None
    if not (fields.offsets[1:] > fields.offsets[:-1]).all():
        return bodies, None
    return placed, fields


def _kept_records(
    fields: Fields, counts: Ints, is_kept: Flags, has_no_value: Flags
) -> list[KeptRecords]:
    """Return the records of each batch body that the compaction keeps. `counts` is the number of
    records per body, which is never 0."""
    ends = np.cumsum(counts)
    starts = ends - counts
    kept_counts = np.add.reduceat(is_kept, starts, dtype=np.int64)
    is_keyless = fields.key_bytes < 0
    keyless = np.add.reduceat(is_keyless & ~is_kept, starts, dtype=np.int64).tolist()
    tombstones = np.add.reduceat(has_no_value & is_kept, starts, dtype=np.int64).tolist()
    smallest = np.iinfo(np.int64).min
    times = np.where(is_kept, fields.timestamps_ms, smallest)
    latest = np.maximum.reduceat(times, starts).tolist()
    # A range starts where the previous record is dropped or belongs to another batch. Its end is
    # determined in the same way.
    is_begin, is_end = is_kept.copy(), is_kept.copy()
    is_begin[1:] &= ~is_kept[:-1]
    is_begin[starts] = is_kept[starts]
    is_end[:-1] &= ~is_kept[1:]
    is_end[ends - 1] = is_kept[ends - 1]
    begins = fields.record_at[is_begin].tolist()
    stops = fields.record_end[is_end].tolist()
    range_counts = np.add.reduceat(is_begin, starts, dtype=np.int64).tolist()
    found: list[KeptRecords] = []
    at = 0
    for number, kept_count in enumerate(kept_counts.tolist()):
        upto = at + range_counts[number]
        found.append(
            KeptRecords(
                kept_count,
                list(zip(begins[at:upto], stops[at:upto], strict=True)),
                latest[number] if kept_count else NO_TIMESTAMP,
                tombstones[number] > 0,
                keyless[number],
            )
        )
        at = upto
    return found
