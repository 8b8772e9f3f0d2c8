"""Rules about compacted logs: the records on which readers and replicas must agree. The module is
pure.

Each broker compacts its own replicas, at its own times. One replica may therefore still have a
superseded or deleted record that another replica has removed. All replicas must have the last value
of every other record key.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping

from ottla.storage.producers.producer_state import read_end_marker
from ottla.wire.batch import BatchHeader, batches
from ottla.wire.records import Record, scan

INTERNAL_LOGS = ("__consumer_offsets-", "__remote_log_metadata-", "__transaction_state-")
COMPACTED_TOPIC = "compacted-"
"""Prefix of the names of topics that a run creates with `cleanup.policy=compact`."""


def is_compacted(name_of_log: str) -> bool:
    """Return whether the name of a log shows that the log is compacted."""
    return name_of_log.startswith(INTERNAL_LOGS) or COMPACTED_TOPIC in name_of_log


def record_key_of(value: Hashable, record_key_count: int) -> int:
    """Return the record key of a record value, which is a number or `name/number`. The key is that
    number modulo `record_key_count`."""
    return int(str(value).rpartition("/")[2]) % record_key_count


def differing_key(
    first: Mapping[int, bytes], second: Mapping[int, bytes], end: int
) -> bytes | None:
    """Return a record key whose last value below the offset `end` differs between two replicas, or
    None if the replicas agree.

    Both mappings contain the batches of a replica by base offset, with every batch below `end`. A
    replica may lack a record that compaction has removed: a record that a later record of the same
    key supersedes, or a record of an aborted transaction. The other replica may still have that
    record.
    """
    markers = _Markers(first, second)
    states = markers.state_of(first, end), markers.state_of(second, end)
    later = {key for found in (first, second) for key in _keys_from(found, end)}
    for key in sorted(states[0].keys() | states[1].keys()):
        if key not in later and states[0].get(key) != states[1].get(key):
            return key
    return None


class _Markers:
    """Control records that end transactions, by producer, collected from both replicas of a log."""

    def __init__(self, *replicas: Mapping[int, bytes]) -> None:
        aborts: dict[int, dict[int, bool]] = {}
        for found in replicas:
            for base_offset, data in found.items():
                for at, header in batches(data):
                    for record in scan(data, at, header) if header.is_control else ():
                        marker = read_end_marker(record.key, record.value)
                        if marker is not None:
                            aborts.setdefault(header.producer_id, {})[base_offset] = marker.is_abort
        self._aborts = aborts
        """For each transaction marker, by its offset: True if it aborts the transaction, False if
        it commits it. One mapping per producer id."""
        self._offsets = {producer: sorted(each) for producer, each in aborts.items()}

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        """Return True if the producer's next transaction marker after an offset is an abort, False
        if it is a commit or missing."""
        offsets = self._offsets.get(producer_id, [])
        index = bisect_right(offsets, offset)
        return index < len(offsets) and self._aborts[producer_id][offsets[index]]

    def state_of(self, found: Mapping[int, bytes], end: int) -> dict[bytes, bytes]:
        """Return the last committed value of every record key that is not deleted. `found` contains
        a log's batches by their base offsets. Batches that begin at or after `end` are ignored."""
        state: dict[bytes, bytes] = {}
        for base_offset, header, record in _records(found, 0, end):
            if header.is_transactional and self._is_aborted(header.producer_id, base_offset):
                continue
            if record.value is None:
                state.pop(bytes(record.key or b""), None)
            else:
                state[bytes(record.key or b"")] = bytes(record.value)
        return state


def _keys_from(found: Mapping[int, bytes], start: int) -> Iterator[bytes]:
    for _, _, record in _records(found, start, max(found, default=-1) + 1):
        yield bytes(record.key or b"")


def _records(
    found: Mapping[int, bytes], start: int, end: int
) -> Iterator[tuple[int, BatchHeader, Record]]:
    """Yield (base offset of the batch, batch header, record) for each record of a log, in the order
    of offsets. Only batches whose base offset is in [start, end) are read. Control batches are left
    out.

    `found` contains the log's batches by their base offsets.
    """
    for base_offset in sorted(at for at in found if start <= at < end):
        for at, header in batches(found[base_offset]):
            if not header.is_control:
                for record in scan(found[base_offset], at, header):
                    yield base_offset, header, record
