"""SharePersister: interface to the durable state of share partitions, used by partition leaders and
group coordinators.

The share coordinator of a share partition stores its state (KIP-932). It is the broker that leads
the partition of `__share_group_state` to which the key is mapped. An implementation finds this
coordinator, retries failed requests, and answers each call exactly once. Pure.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import uuid_text

NO_START_OFFSET = -1
"""Start offset in the state of a share partition that is not initialised, or whose first offset is
not known yet."""

NO_DELIVERY_COUNT = -1
"""Delivery-complete count in a share partition's state if the sender runs an older release without
this field (KIP-1226)."""


_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class SharePartitionKey(NamedTuple):
    """Key of a share partition: a share group, and a partition of a topic that the group
    consumes."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """Key of this share partition in FindCoordinator requests, `group:topicId:partition`, whose
        hash selects the share coordinator."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"


def parse_share_partition_key(text: str) -> SharePartitionKey | None:
    """Parse the key of a FindCoordinator request for a share coordinator. Returns the share
    partition of the key, or None if the text is not a valid key.

    A group id may contain colons.
    """
    group_id, _, rest = text.rstrip(":").rpartition(":")
    group_id, _, topic_text = group_id.rpartition(":")
    if not group_id.strip() or not _INTEGER.fullmatch(rest):
        return None
    try:
        topic_id = UUID(bytes=urlsafe_b64decode(topic_text + "=="))
    except ValueError:
        return None
    return SharePartitionKey(group_id, topic_id, int(rest))


class StateBatch(NamedTuple):
    """Delivery state that is common to the records of a share partition from `first_offset` to
    `last_offset`, both inclusive."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """Delivery state of the records: 0 available, 2 acknowledged, 3 being archived, 4 archived
    (KIP-932, KIP-1191)."""
    delivery_count: int
    """Number of times that each of the records was delivered to a consumer."""


SETTLED_STATES = frozenset((2, 4))
"""Delivery states of records that never change again: 2 (acknowledged) and 4 (archived)."""


def settled_count(batches: Iterable[StateBatch]) -> int:
    """Return the number of records in state batches that are acknowledged or archived."""
    return sum(
        batch.last_offset - batch.first_offset + 1
        for batch in batches
        if batch.delivery_state in SETTLED_STATES
    )


class ShareState(NamedTuple):
    """Durable state of a share partition, as `SharePersister.read` returns it."""

    code: ErrorCode
    state_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    """Lowest offset of the share partition whose record is neither acknowledged nor archived, or -1
    if the state is not initialised."""
    delivery_complete_count: int = 0
    """Number of records in `batches` that are acknowledged or archived."""
    batches: tuple[StateBatch, ...] = ()
    """Delivery states of the delivered records at or above the start offset, as ranges ordered by
    offset, without overlap."""


class ShareSummary(NamedTuple):
    """Summary of a share partition's durable state, without its batches, as
    `SharePersister.read_summary` returns it."""

    code: ErrorCode
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COUNT


class SharePersister(Protocol):
    """Interface to the durable state of share partitions.

    A method never raises. Its result is passed to `on_done` exactly once, during the call or later.
    Calls for one partition take effect in the order in which they were made. Transient errors are
    retried. Other errors are FENCED_LEADER_EPOCH (a newer leader has read the state),
    FENCED_STATE_EPOCH (the state was initialised again), INVALID_REQUEST (not initialised, or a
    negative number) and UNKNOWN_TOPIC_OR_PARTITION.
    """

    def initialize(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Create the state of a share partition, or replace it with a state without batches.

        If the start offset is -1, the first write sets it. If the stored state already has this
        epoch, the call is a retry and changes nothing, so that it cannot undo progress. (Kafka 4.4
        overwrites the state.) A reset of offsets therefore passes a higher epoch, which also fences
        leaders that have read the earlier state.
        """
        ...

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareState], None]
    ) -> None:
        """Read the state of a share partition for its leader, and fence older leaders."""
        ...

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Merge changed state batches into the state of a share partition. A start offset below the
        stored start offset is ignored."""
        ...

    def delete(self, key: SharePartitionKey, *, on_done: Callable[[ErrorCode], None]) -> None:
        """Delete the durable state of a share partition. Succeeds even if the share partition has
        no state."""
        ...

    def read_summary(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareSummary], None]
    ) -> None:
        """Read the epochs and the start offset of a share partition's durable state, without
        fencing any leader."""
        ...
