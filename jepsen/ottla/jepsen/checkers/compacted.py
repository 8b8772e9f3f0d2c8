"""What replicas of a compacted log must agree in.  Pure.

Each is compacted by its own broker, when it comes to it: what was superseded or deleted is there or
not, and the last value of every other key is in all of them.
"""

from collections.abc import Mapping

from ottla.wire.batch import batches
from ottla.wire.records import scan

COMPACTED = "__consumer_offsets-"
"""How the logs are called that brokers compact unasked."""


def state_of(found: Mapping[int, bytes], end: int) -> dict[bytes, bytes]:
    """Return the last value of every key that is not deleted, by batches that begin before `end`.

    `found` has a log's batches by their base offsets.
    """
    state: dict[bytes, bytes] = {}
    for base_offset in sorted(at for at in found if at < end):
        for at, header in batches(found[base_offset]):
            if header.is_control:
                continue
            for record in scan(found[base_offset], at, header):
                if record.value is None:
                    state.pop(bytes(record.key or b""), None)
                else:
                    state[bytes(record.key or b"")] = bytes(record.value)
    return state
