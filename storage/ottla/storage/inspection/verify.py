"""Consistency check of all files of a partition's directory, for `ottla log verify`.

Pure and read-only. Corrupt data raises no exception: each problem is a `Flaw` with file and
position, and the check continues if possible. Problems that a broker repairs at startup after a
crash count as damage in this check. Temporary files that the broker only removes do not.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple, Protocol

from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_EPOCH, Offset
from ottla.model.limits import INT32_MAX
from ottla.model.values import frozen
from ottla.storage.inspection.batch_walk import BatchRow, Problem, records_of, walk
from ottla.storage.inspection.index_checks import AnyIndexCheck, Checked, check_of
from ottla.storage.inspection.readable import Readable, whole_file
from ottla.storage.producers.producer_batches import decode_batches
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.segments.abort_digests import ABORT_DIGESTS, parse_digests
from ottla.storage.segments.epoch_cache import EpochCache, decode_epochs
from ottla.storage.segments.files import (
    CLEANED,
    DELETED,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_BATCHES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    offset_of,
    offsets_of,
)
from ottla.storage.segments.partition_metadata import decode_partition_metadata
from ottla.storage.segments.segment import SEGMENT_OFFSETS_MAX
from ottla.storage.segments.segment_list import CLOSED_SEGMENTS, parse_segments
from ottla.wire.batch import MAGIC

TEMPORARY = ".tmp"
PASSING_SUFFIXES = (DELETED, CLEANED, SWAP, TEMPORARY)
"""Suffixes of temporary files in a partition's directory. Such files remain if the broker ends
while it creates or removes one."""


class Flaw(NamedTuple):
    """A problem that the check of a file in a partition's directory found, with its position and
    reason."""

    file: str
    position: int | None
    """Position of the flaw in the file in bytes, or None if the flaw concerns the whole file."""
    problem: str
    is_damage: bool = True
    """False for a flaw that an intact log may have: a temporary file, or a tail that is still being
    written."""


class PartitionFiles(Protocol):
    """Read access to the files of one partition's directory."""

    names: list[str]

    def open(self, name: str) -> AbstractContextManager[Readable]:
        """Return a context manager that opens a file for reading. Raises OSError if the file cannot
        be opened."""
        ...


@frozen(kw_only=True)
class PartitionFacts:
    """Facts about a partition from outside its directory. The check compares the partition's files
    with these facts."""

    is_live: bool = False
    """True if a broker may be writing to the partition's directory during the check."""
    is_user_partition: bool = True
    """True if the partition needs a topic id; the metadata log has no topic id."""
    are_records_read: bool = False
    recovery_point: int | None = None
    log_start_offset: int | None = None


class BatchOrder:
    """Check that consecutive batches of a log obey the rules for their order."""

    def __init__(self) -> None:
        self._epoch = -1
        self.end_offset = 0
        """End offset of the last batch that obeys the rules of order."""

    def problems_of(self, batch: BatchRow, segment_base_offset: int) -> Iterator[str]:
        """Yield a description of each rule of order that a batch violates."""
        offsets = f"batch of offsets {batch.base_offset} to {batch.last_offset}"
        if not batch.is_crc_valid:
            yield f"{offsets}: its CRC is wrong"
        if batch.last_offset < batch.base_offset:
            yield f"{offsets}: it ends before it begins"
        elif batch.base_offset < self.end_offset:
            yield f"{offsets}: it begins before {self.end_offset}"
        elif batch.last_offset > segment_base_offset + INT32_MAX:
            yield f"{offsets}: too far above the segment's base offset {segment_base_offset}"
        else:
            self.end_offset = batch.last_offset + 1
        if not 0 <= batch.record_count <= batch.last_offset - batch.base_offset + 1:
            yield f"{offsets}: it cannot hold {batch.record_count} records"
        if batch.magic == MAGIC and batch.leader_epoch < self._epoch:
            yield f"{offsets}: leader epoch {batch.leader_epoch} follows {self._epoch}"
        self._epoch = max(self._epoch, batch.leader_epoch)


def verify_partition(files: PartitionFiles, expected: PartitionFacts) -> Iterator[Flaw]:
    """Yield the flaws of a partition's directory, file by file."""
    yield from _Partition(files, expected).verify()


class _Partition:
    """The check of all files in one partition's directory."""

    def __init__(self, files: PartitionFiles, expected: PartitionFacts) -> None:
        self._files = files
        self._expected = expected
        self._order = BatchOrder()
        self._epochs: EpochCache | None = None
        self._bases = offsets_of(files.names, LOG)

    def verify(self) -> Iterator[Flaw]:
        """Yield the flaws of all files in the partition's directory."""
        yield from self._epoch_file()
        for number, base_offset in enumerate(self._bases):
            yield from self._guarded(file_name(base_offset, LOG), self._segment, number)
        yield from self._small_files()
        yield from self._names()
        yield from self._end()

    def _guarded(
        self, name: str, check: Callable[[str, int], Iterator[Flaw]], number: int
    ) -> Iterator[Flaw]:
        """Run one check of a file and yield the flaws that it finds. A file that cannot be read is
        also a flaw."""
        try:
            yield from check(name, number)
        except FileNotFoundError:
            yield Flaw(name, None, "it is gone", is_damage=not self._expected.is_live)
        except OSError as error:
            yield Flaw(name, None, f"it cannot be read: {error.strerror}")

    # ---- segments

    def _segment(self, name: str, number: int) -> Iterator[Flaw]:
        base_offset = self._bases[number]
        is_last = number + 1 == len(self._bases)
        problem = self._joint_problem(number)
        if problem is not None:
            yield Flaw(name, None, problem)
        self._order.end_offset = base_offset
        with ExitStack() as stack:
            log = stack.enter_context(self._files.open(name))
            checks, missing = self._index_checks(stack, base_offset, is_last=is_last)
            if log.size_bytes or not is_last or checks:
                yield from missing
            is_whole = True
            for row in walk(log):
                if isinstance(row, Problem):
                    yield self._end_of_walk(name, row, is_last=is_last)
                    is_whole = False
                    break
                yield from self._batch(name, log, row, base_offset)
                for index_name, check in checks.items():
                    yield from self._entries(index_name, iter(check.on_batch(row)))
            if is_whole and not (is_last and self._expected.is_live):
                for index_name, check in checks.items():
                    end = f"the log's end at {log.size_bytes}, offset {self._order.end_offset}"
                    yield from self._entries(index_name, check.finish(end))

    def _joint_problem(self, number: int) -> str | None:
        """Return a description of the problem if a segment's base offset does not fit the previous
        segment. Returns None if the offset fits.

        Gaps that the cleaner left are allowed; all of them are below the recovery point.
        """
        if number == 0:
            return None
        base_offset, end_offset = self._bases[number], self._order.end_offset
        if base_offset < end_offset:
            return f"the segment before it ends at offset {end_offset}"
        recovery_point = self._expected.recovery_point
        is_far = base_offset - self._bases[number - 1] > SEGMENT_OFFSETS_MAX
        if base_offset == end_offset or is_far or recovery_point is None:
            return None
        if base_offset <= recovery_point:
            return None
        return f"offsets {end_offset} to {base_offset - 1} are missing; a start cuts the log there"

    def _index_checks(
        self, stack: ExitStack, base_offset: int, *, is_last: bool
    ) -> tuple[dict[str, AnyIndexCheck], list[Flaw]]:
        """Open the indexes of a segment. Returns their checks, and a flaw for each missing file.

        An index may be missing without a flaw if the last writer was killed before it created the
        file. The first aborted transaction creates the transaction index. The first entries create
        the other indexes of a log's first segment.
        """
        checks: dict[str, AnyIndexCheck] = {}
        missing: list[Flaw] = []
        both = {file_name(base_offset, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX)}
        may_miss = is_last and (self._expected.is_live or both.isdisjoint(self._files.names))
        for suffix in INDEX_SUFFIXES:
            name = file_name(base_offset, suffix)
            if name in self._files.names:
                try:
                    file = stack.enter_context(self._files.open(name))
                    checks[name] = check_of(suffix, file, base_offset)
                except OSError as error:
                    missing.append(Flaw(name, None, f"it cannot be read: {error.strerror}"))
            elif suffix != TRANSACTION_INDEX:
                text = "it is not there; a start rebuilds it"
                missing.append(Flaw(name, None, text, is_damage=not may_miss))
        return checks, missing

    def _end_of_walk(self, name: str, problem: Problem, *, is_last: bool) -> Flaw:
        """Return the flaw for the problem that ended the iteration over a segment's batches. Zeros
        count as preallocated space only in the last segment."""
        is_damage = problem.is_damage or not is_last
        if is_last and self._expected.is_live:
            return Flaw(
                name, problem.position, f"{problem.problem} (perhaps only temporarily)", False
            )
        return Flaw(name, problem.position, problem.problem, is_damage)

    def _batch(self, name: str, log: Readable, row: BatchRow, base_offset: int) -> Iterator[Flaw]:
        for problem in self._order.problems_of(row, base_offset):
            yield Flaw(name, row.position, problem)
        problem_of_epoch = self._epoch_problem(row)
        if problem_of_epoch is not None:
            yield Flaw(LEADER_EPOCH_CHECKPOINT, None, problem_of_epoch)
        if self._expected.are_records_read and row.is_crc_valid:
            try:
                for record in records_of(log, row):
                    if not row.base_offset <= record.offset <= row.last_offset:
                        yield Flaw(name, row.position, f"record offset {record.offset} is outside")
            except CorruptDataError as error:
                yield Flaw(name, row.position, f"its records: {error.where}")

    def _entries(self, name: str, checked: Iterator[Checked]) -> Iterator[Flaw]:
        for entry in checked:
            if entry.problem is not None:
                yield Flaw(name, entry.position, entry.problem)

    # ---- epochs

    def _epoch_file(self) -> Iterator[Flaw]:
        if LEADER_EPOCH_CHECKPOINT not in self._files.names:
            return
        yield from self._guarded(LEADER_EPOCH_CHECKPOINT, self._load_epochs, 0)

    def _load_epochs(self, name: str, _: int) -> Iterator[Flaw]:
        try:
            with self._files.open(name) as file:
                self._epochs = decode_epochs(whole_file(file))
        except CorruptDataError as error:
            yield Flaw(name, None, error.where)

    def _epoch_problem(self, row: BatchRow) -> str | None:
        """Return a description of the problem if a batch contradicts the `leader-epoch-checkpoint`
        file. Returns None if the batch agrees with the file. Each epoch is reported at most once.

        Epochs that begin above the recovery point need not be in the checkpoint file yet.
        """
        epochs, flushed_offset = self._epochs, self._expected.recovery_point
        if epochs is None or row.leader_epoch < 0:
            return None
        known = epochs.epoch_of(Offset(row.base_offset))
        is_flushed = flushed_offset is not None and row.base_offset < flushed_offset
        if known == row.leader_epoch or (known < row.leader_epoch and not is_flushed):
            return None
        if known == NO_EPOCH and self._is_before_log_start(row):
            return None  # records below the log start have no epochs any longer
        self._epochs = None  # all later batches would repeat this problem
        return f"offset {row.base_offset} is of epoch {row.leader_epoch}, not of {known}"

    def _is_before_log_start(self, row: BatchRow) -> bool:
        log_start = self._expected.log_start_offset
        return log_start is None or row.base_offset < log_start

    # ---- other files

    def _small_files(self) -> Iterator[Flaw]:
        checks: Mapping[str, Callable[[str, int], Iterator[Flaw]]] = {
            PARTITION_METADATA: self._topic_id,
            PRODUCER_BATCHES: self._producer_batches,
            ABORT_DIGESTS: self._abort_digests,
            CLOSED_SEGMENTS: self._closed_segments,
        }
        for name, check in checks.items():
            if name in self._files.names:
                yield from self._guarded(name, check, 0)
        if PARTITION_METADATA not in self._files.names and self._expected.is_user_partition:
            text = "it is not there; a start sets the directory aside"
            yield Flaw(PARTITION_METADATA, None, text, is_damage=not self._expected.is_live)
        for offset in offsets_of(self._files.names, SNAPSHOT):
            yield from self._guarded(file_name(offset, SNAPSHOT), self._snapshot, offset)

    def _topic_id(self, name: str, _: int) -> Iterator[Flaw]:
        with self._files.open(name) as file:
            yield from _corruption(name, lambda: decode_partition_metadata(whole_file(file)))

    def _producer_batches(self, name: str, _: int) -> Iterator[Flaw]:
        with self._files.open(name) as file:
            yield from _corruption(name, lambda: decode_batches(whole_file(file)))

    def _abort_digests(self, name: str, _: int) -> Iterator[Flaw]:
        with self._files.open(name) as file:
            yield from _corruption(name, lambda: parse_digests(whole_file(file)))

    def _closed_segments(self, name: str, _: int) -> Iterator[Flaw]:
        with self._files.open(name) as file:
            yield from _corruption(name, lambda: parse_segments(whole_file(file)))

    def _snapshot(self, name: str, offset: int) -> Iterator[Flaw]:
        with self._files.open(name) as file:
            try:
                states = decode_snapshot(whole_file(file), Offset(offset))
            except CorruptDataError as error:
                yield Flaw(name, None, error.where)
                return
        if self._bases and offset > self._order.end_offset and not self._expected.is_live:
            end = self._order.end_offset
            yield Flaw(name, None, f"it is above the log's end at offset {end}", is_damage=False)
        for producer_id, producer in states.producers.items():
            last = producer.batches[-1].last_offset if producer.batches else -1
            highest = max(last, producer.txn_first_offset)
            if highest >= offset:
                yield Flaw(name, None, f"producer {producer_id} wrote offset {highest} later")

    def _names(self) -> Iterator[Flaw]:
        """Yield a flaw for each temporary file in the partition's directory, which a broker removes
        at startup, and for each file with an unknown name."""
        passing = [name for name in self._files.names if name.endswith(PASSING_SUFFIXES)]
        orphans = [
            name
            for name in self._files.names
            for suffix in INDEX_SUFFIXES
            if (base := offset_of(name, suffix)) is not None and base not in self._bases
        ]
        for names, what in (
            (passing, "a left-over of a deletion or a cleaning"),
            (orphans, "an index without a log"),
        ):
            if names:
                others = f" (and {len(names) - 1} others)" if len(names) > 1 else ""
                text = f"{what}, which a start removes{others}"
                yield Flaw(names[0], None, text, is_damage=False)

    def _end(self) -> Iterator[Flaw]:
        """Yield a flaw if the partition's log ends before its recovery point or before its log
        start offset."""
        if not self._bases or self._expected.is_live:
            return
        name, end_offset = file_name(self._bases[-1], LOG), self._order.end_offset
        recovery_point, log_start = self._expected.recovery_point, self._expected.log_start_offset
        if recovery_point is not None and recovery_point > end_offset:
            text = f"the log ends at offset {end_offset}, but was flushed up to {recovery_point}"
            yield Flaw(name, None, text)
        if log_start is not None and log_start > end_offset:
            text = f"the log ends at offset {end_offset}, but begins at {log_start}"
            yield Flaw(name, None, text)


def _corruption(name: str, read: Callable[[], object]) -> Iterator[Flaw]:
    try:
        read()
    except CorruptDataError as error:
        yield Flaw(name, None, error.where)


def verify_batches(name: str, file: Readable) -> Iterator[Flaw]:
    """Yield the flaws of a single file of batches, such as a raft snapshot."""
    order = BatchOrder()
    for row in walk(file):
        if isinstance(row, Problem):
            yield Flaw(name, row.position, row.problem)
            return
        for problem in order.problems_of(row, 0):
            yield Flaw(name, row.position, problem)
