"""What a decision is: records to append and the reply to give once they are committed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Records in the order they must be folded, one atomic batch, and the reply.

    No records means that the reply may be given at once.
    """

    records: tuple[Record, ...]
    reply: R


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
