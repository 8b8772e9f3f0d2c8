"""Checks the acknowledgements in ShareFetch and ShareAcknowledge requests, in Kafka's order.
Pure."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.broker.shares.share_partition import AckBatch, AckType
from ottla.model.errors import ErrorCode, RefusedError

TYPES = frozenset((AckType.GAP, AckType.ACCEPT, AckType.RELEASE, AckType.REJECT))
TYPES_WITH_RENEW = TYPES | {AckType.RENEW}
RENEW_FROM = 2
"""First version of ShareFetch and ShareAcknowledge that can renew acquisition locks (KIP-1222)."""


class AcknowledgedRange(Protocol):
    """Acknowledgement batch (a range of offsets and their types) as ShareFetch and ShareAcknowledge
    requests contain it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def checked_acks(
    batches: Iterable[AcknowledgedRange], version: int, *, is_renew_ack: bool
) -> Sequence[AckBatch]:
    """Return the acknowledgements of one partition in a request. Raises
    RefusedError(INVALID_REQUEST) if an acknowledgement is malformed."""
    checked: list[AckBatch] = []
    allowed = TYPES_WITH_RENEW if version >= RENEW_FROM else TYPES
    previous_last = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last:
            raise _invalid("An acknowledgement ends before it begins.")
        if first < previous_last:
            raise _invalid("The acknowledgements are not in the order of their offsets.")
        if not types:
            raise _invalid("An acknowledgement has no type.")
        if len(types) not in (1, last - first + 1):
            raise _invalid("An acknowledgement has neither one type nor one for each record.")
        used = set(types)
        if not used <= allowed:
            raise _invalid("The type of an acknowledgement is unknown.")
        if AckType.RENEW in used and not is_renew_ack:
            raise _invalid("A request that renews locks must say so.")
        checked.append(AckBatch(first, last, types))
        previous_last = last
    return checked


def _invalid(reason: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, reason)
