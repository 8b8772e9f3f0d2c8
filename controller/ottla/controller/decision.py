"""What a decision is: records to append and the reply to give once they are committed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig

R = TypeVar("R")

APPEND_RECORDS_MAX = 10_000
"""Records of one append (KRaft's bound).  Higher stalls the loop, and with it heartbeats, for
longer at a time; lower writes and flushes more batches for one event."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records in the order they must be folded, and the reply.

    No records means that the reply may be given at once.
    """

    records: tuple[Record, ...]
    reply: R
    is_atomic: bool = False
    """Whether the records count only together.  Where they do not, each prefix of them leaves a
    cluster that works, and a controller that dies between two appends leaves nothing behind that
    the next one does not put right."""

    def appends(self, records_max: int = APPEND_RECORDS_MAX) -> Iterator[tuple[Record, ...]]:
        """Yield the records as the log takes them."""
        if self.is_atomic:
            records_max = max(1, len(self.records))
        for start in range(0, len(self.records), records_max):
            yield self.records[start : start + records_max]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """How far one voter or observer has come, as the leader of the quorum knows it."""

    id: NodeId
    directory_id: UUID
    end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """(listener name, host, port); known for voters only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    """What the leader of the metadata quorum tells of it."""

    leader_id: NodeId
    leader_epoch: Epoch
    high_watermark: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...]
    problems: tuple[str, ...] = ()
    """What keeps voters apart for good, a sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a decision may know besides the image and the request."""

    config: ControllerConfig
    rng: Rng
    quorum_status: Callable[[], QuorumStatus]


def request_uuid(data: bytes) -> UUID:
    """Return the id in a broker's request; refuse one that has not 16 bytes."""
    if len(data) != 16:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"A uuid has 16 bytes, not {len(data)}")
    return UUID(bytes=data)
