"""Invariants of one partition's log.

`check_whole` compares a log with the list of batches that it should contain. It checks
OffsetsMonotone, IndexPointsToItsOffset, TimeIndexMonotone, EpochCacheMatchesBatches,
DuplicateIsSeen, AbortedAreListed, LastStableHoldsBack and StartOffsetNeverGoesBack, and, with
`kept_batches`, FlushedIsKept and NothingInvented.
"""

from functools import partial
from typing import Any

from ottla.jepsen.world.disk_waits import bytes_of, waited_for
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.log_model import LogModel, ModelBatch
from ottla.model.ids import Offset
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import LogRead
from ottla.storage.segments.segment import Segment
from ottla.wire.batch import BatchHeader, batches

READ_BYTES = 1 << 20


def _read(log: Log, offset: Offset) -> LogRead:
    return log.read(offset, bytes_max=READ_BYTES, end_offset=log.end_offset, at_least_one=True)


def found_in(log: Log, *, holes_below: int = 0) -> list[tuple[BatchHeader, bytes]]:
    """Return every batch of a partition's log with its bytes, read in the same way as by a fetch.

    Batches below the offset `holes_below` may be missing: if a deletion was not durable at a power
    cut, only some of the deleted batches exist again.
    """
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        read = waited_for(partial(_read, log, offset))
        if read.slice is None:
            raise Violation("OffsetsMonotone", f"nothing is read at {offset} of {log.end_offset}")
        data = bytes_of(read.slice)
        for at, header in batches(data):
            is_hole = header.base_offset > max(offset, holes_below)
            if is_hole or header.end_offset <= offset:
                detail = f"{header.base_offset} comes where {offset} is due"
                raise Violation("OffsetsMonotone", detail)
            found.append((header, data[at : at + header.size_bytes]))
            offset = header.end_offset
    return found


def kept_batches(
    log: Log, model: LogModel, pending: list[ModelBatch], *, flushed_end: int, at_least: int
) -> list[ModelBatch]:
    """Return the batches of the model's list that are in the log after a recovery.

    The expected batches are the model's list, followed by `pending` (the batches that were being
    written at the crash). Raises Violation unless the log contains the first of them, at least up
    to the offset `at_least`. No data was flushed from `flushed_end` on. There the log may instead
    have a batch that was refused because of a disk failure.
    """
    possible = [*model.batches, *pending]
    found = found_in(log, holes_below=model.start_offset_max)
    at = 0
    if found:
        first = found[0][0].base_offset
        at = next((i for i, each in enumerate(possible) if each.base_offset == first), -1)
        if at < 0 and any(ghost.base_offset == first for ghost in model.ghosts):
            at = sum(1 for each in possible if each.end_offset <= first)
        if at < 0:
            raise Violation("NothingInvented", f"no batch was ever written at offset {first}")
    else:
        at = sum(1 for each in possible if each.end_offset <= log.end_offset)
    kept = possible[:at]
    for header, raw in found:
        while at < len(possible) and possible[at].base_offset < header.base_offset:
            at += 1
        expected = possible[at] if at < len(possible) else None
        at += 1
        if expected is None or expected.raw != raw:
            is_flushed = header.base_offset < flushed_end
            ghost = None if is_flushed else _ghost_of(model, header.base_offset, raw)
            if ghost is None:
                name = "FlushedIsKept" if is_flushed else "NothingInvented"
                raise Violation(name, f"the batch at {header.base_offset} is not what was written")
            expected = ghost
        kept.append(expected)
    if log.end_offset < at_least:
        name = "FlushedIsKept" if at_least <= flushed_end else "WrittenOutlivesTheProcess"
        raise Violation(name, f"the log ends at {log.end_offset}, {at_least} was kept safe")
    return kept


def _ghost_of(model: LogModel, base_offset: int, raw: bytes) -> ModelBatch | None:
    for ghost in model.ghosts:
        if ghost.base_offset == base_offset and ghost.raw == raw:
            return ghost
    return None


def check_bounds(log: Log, model: LogModel) -> None:
    """Check the cheap invariants of a log's start and end offsets and of its high watermark. Called
    after every event."""
    if log.end_offset != model.end_offset:
        raise Violation("OffsetsMonotone", f"end {log.end_offset}, not {model.end_offset}")
    if log.log_start_offset != model.start_offset:
        detail = f"start {log.log_start_offset}, not {model.start_offset}"
        raise Violation("StartOffsetNeverGoesBack", detail)
    if not log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset:
        raise Violation("OffsetsInOrder", _offsets_of(log))
    if log.recovery_point > log.end_offset:
        raise Violation("RecoveryPointIsFlushed", _offsets_of(log))
    first_open = model.first_open_transaction()
    if first_open is not None and log.last_stable_offset > max(first_open, log.log_start_offset):
        raise Violation("StableIsDecided", f"{_offsets_of(log)}, open since {first_open}")


def check_whole(log: Log, model: LogModel) -> None:
    """Compare a partition's log and all its derived state with the model's list of batches."""
    found = found_in(log, holes_below=model.start_offset_max)
    expected = model.since(model.start_offset)
    if [raw for _, raw in found] != [kept.raw for kept in expected]:
        places = [header.base_offset for header, _ in found]
        wanted = [kept.base_offset for kept in expected]
        raise Violation("ReadsAsWritten", f"batches at {places}, written at {wanted}")
    for segment in log.state.segments:
        _check_segment(segment, model)
    check_epochs(log, model)
    check_producers(log, model)
    check_aborted(log, model, log.log_start_offset, log.end_offset)


def _check_segment(segment: Segment, model: LogModel) -> None:
    """Check that both indexes of a log segment agree with its batches."""
    data = bytes_of(FileSlice(segment.file, 0, segment.size_bytes))
    places = dict(batches(data))
    index = segment.offset_index
    before = (-1, -1)
    for number in range(index.count):
        offset, position = entry = waited_for(partial(index.entry_at, number))
        header = places.get(position)
        if offset <= before[0] or position <= before[1] or header is None:
            detail = f"{entry} after {before} in segment {segment.base_offset}"
            raise Violation("IndexPointsToItsOffset", detail)
        if header.last_offset != offset:
            detail = f"{entry}: that batch ends at {header.last_offset}"
            raise Violation("IndexPointsToItsOffset", detail)
        before = entry
    newest_ms = {int(header.last_offset): header.max_timestamp for header in places.values()}
    times = segment.time_index
    before = (-1, -1)
    for number in range(times.count):
        timestamp_ms, offset = entry = waited_for(partial(times.entry_at, number))
        if timestamp_ms <= before[0] or offset <= before[1] or newest_ms.get(offset) != entry[0]:
            detail = f"{entry} after {before} in segment {segment.base_offset}"
            raise Violation("TimeIndexMonotone", detail)
        before = entry
    largest_ms = max(newest_ms.values(), default=-1)
    if segment.max_timestamp_ms != largest_ms:
        detail = f"segment {segment.base_offset}: {segment.max_timestamp_ms}, not {largest_ms}"
        raise Violation("LargestTimestampIsKnown", detail)


def check_epochs(log: Log, model: LogModel) -> None:
    """Check EpochCacheMatchesBatches: the log's epoch cache knows the leader epochs of all records
    in the log's files."""
    from_offset = log.state.segments[0].base_offset
    entries = [entry for entry in log.state.epochs.entries if entry.start_offset < log.end_offset]
    clipped = [(entry.epoch, max(entry.start_offset, from_offset)) for entry in entries]
    held = [
        entry
        for at, entry in enumerate(clipped)
        if at + 1 == len(clipped) or clipped[at + 1][1] > from_offset
    ]
    expected = model.epochs(from_offset)
    if from_offset < log.end_offset and held != expected:
        raise Violation("EpochCacheMatchesBatches", f"{entries}, not {expected}")


def check_producers(log: Log, model: LogModel) -> None:
    """Check DuplicateIsSeen: the log's producer state has every producer whose records the log
    contains."""
    known = log.active_producers
    strange = set(known) - set(model.producers)
    if strange:
        raise Violation("NothingInvented", f"producers {sorted(strange)}")
    for producer_id, producer in model.producers.items():
        if producer.last_offset < log.log_start_offset:
            continue
        held: Any = known.get(producer_id)
        if held is None or held.epoch != producer.epoch:
            raise Violation("DuplicateIsSeen", f"producer {producer_id} is not known")
        remembered = [(each.base_offset, each.base_sequence) for each in held.batches]
        sent = [(kept.base_offset, kept.made.base_sequence) for kept in producer.batches]
        due = [each for each in sent[-1:] if each[0] >= log.log_start_offset]
        if remembered[-1:] != (due or remembered[-1:]) or not set(remembered) <= set(sent):
            detail = f"producer {producer_id}: {remembered} of {sent}"
            raise Violation("DuplicateIsSeen", detail)
        first = producer.txn_first_offset
        if (first < 0 or first >= log.log_start_offset) and held.txn_first_offset != first:
            detail = f"producer {producer_id}: since {held.txn_first_offset}, not {first}"
            raise Violation("OpenTransactionIsKnown", detail)


def check_aborted(log: Log, model: LogModel, offset: int, end_offset: int) -> None:
    """Check AbortedAreListed: a reader of an offset range receives every aborted transaction in the
    range."""
    expected = {
        (each.producer_id, each.first_offset)
        for each in model.aborted
        if each.last_offset >= offset and log.log_start_offset <= each.first_offset < end_offset
    }
    listed = waited_for(lambda: log.aborted_transactions(Offset(offset), Offset(end_offset)))
    cut_off = {
        each.producer_id for each in model.aborted if each.first_offset < log.log_start_offset
    }
    """Ids of the producers whose aborted transactions began with records that are deleted. The log
    may list such a transaction as starting at the log start."""
    held = {
        each
        for each in listed
        if each[1] >= log.log_start_offset and (each in expected or each[0] not in cut_off)
    }
    if held != expected:
        raise Violation("AbortedAreListed", f"{sorted(held)}, not {sorted(expected)}")


def check_stable(log: Log, model: LogModel) -> None:
    """Check LastStableHoldsBack: read_committed returns no record above the start of an open
    transaction.

    A transaction whose records are all deleted does not limit reads.
    """
    open_since = {
        producer_id: producer.txn_first_offset
        for producer_id, producer in model.producers.items()
        if producer.txn_first_offset >= 0
    }
    for kept in model.since(log.log_start_offset):
        made = kept.made
        first = open_since.get(made.producer_id)
        if first is None or not made.is_transactional or kept.base_offset < first:
            continue
        bound = max(kept.base_offset, log.log_start_offset)
        if log.last_stable_offset > bound:
            detail = f"{log.last_stable_offset}, with a transaction open from {bound} on"
            raise Violation("LastStableHoldsBack", detail)
        return


def state_of(log: Log) -> tuple[Any, ...]:
    """Return the complete state that a recovery derives from a log directory, in a form that allows
    comparing two recoveries."""
    return (
        log.log_start_offset,
        log.end_offset,
        log.recovery_point,
        log.state.epochs.entries,
        [(segment.base_offset, segment.size_bytes) for segment in log.state.segments],
        sorted(
            (
                producer_id,
                each.epoch,
                each.txn_first_offset,
                [batch[:4] for batch in each.batches[-1:]],
            )
            for producer_id, each in log.active_producers.items()
        ),
    )


def _offsets_of(log: Log) -> str:
    return (
        f"start {log.log_start_offset}, stable {log.last_stable_offset}, "
        f"watermark {log.high_watermark}, end {log.end_offset}, flushed {log.recovery_point}"
    )
