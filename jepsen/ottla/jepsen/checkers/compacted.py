"""What readers and replicas of a compacted log must agree in.  Pure.

Each replica is compacted by its own broker, when it comes to it: what was superseded or deleted is
there or not, and the last value of every other key is in all of them.
"""

from collections.abc import Hashable, Iterator, Mapping

from ottla.wire.batch import batches
from ottla.wire.records import Record, scan

INTERNAL_LOGS = ("__consumer_offsets-", "__transaction_state-")
COMPACTED_TOPIC = "compacted-"
"""In the names of topics that a run makes with `cleanup.policy=compact`."""


def is_compacted(name_of_log: str) -> bool:
    """Return whether a log's name says that it is compacted."""
    return name_of_log.startswith(INTERNAL_LOGS) or COMPACTED_TOPIC in name_of_log


def record_key_of(value: Hashable, record_key_count: int) -> int:
    """Return the key of the record that holds a value, a number or `name/number`."""
    return int(str(value).rpartition("/")[2]) % record_key_count


def differing_key(
    first: Mapping[int, bytes], second: Mapping[int, bytes], end: int
) -> bytes | None:
    """Return a key of which two replicas have other last values below `end`, None for none.

    Both have their log's batches by base offset, and hold all there was below `end`.  Of a key that
    has a record behind it what lies before may be compacted away.
    """
    states = state_of(first, end), state_of(second, end)
    later = {key for found in (first, second) for key in _keys_from(found, end)}
    for key in sorted(states[0].keys() | states[1].keys()):
        if key not in later and states[0].get(key) != states[1].get(key):
            return key
    return None


def state_of(found: Mapping[int, bytes], end: int) -> dict[bytes, bytes]:
    """Return the last value of every key that is not deleted, by batches that begin before `end`.

    `found` has a log's batches by their base offsets.
    """
    state: dict[bytes, bytes] = {}
    for record in _records(found, 0, end):
        if record.value is None:
            state.pop(bytes(record.key or b""), None)
        else:
            state[bytes(record.key or b"")] = bytes(record.value)
    return state


def _keys_from(found: Mapping[int, bytes], start: int) -> Iterator[bytes]:
    for record in _records(found, start, max(found, default=-1) + 1):
        yield bytes(record.key or b"")


def _records(found: Mapping[int, bytes], start: int, end: int) -> Iterator[Record]:
    """Yield the records of the batches that begin in [start, end), in order."""
    for base_offset in sorted(at for at in found if start <= at < end):
        for at, header in batches(found[base_offset]):
            if not header.is_control:
                yield from scan(found[base_offset], at, header)
