"""Encoder and decoder of Kafka's `quorum-state` file: the epoch, the leader and the vote. Pure.

Without this file a voter could vote twice in one epoch (OneLeaderPerEpoch). The driver writes it
atomically, and before it sends any response that depends on it.
"""

import base64
import binascii
import json
from typing import Any
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId
from ottla.model.limits import INT32_MAX
from ottla.model.values import frozen
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey

QUORUM_STATE_FILE = "quorum-state"
"""Name of the quorum state file in the metadata log's directory."""

NO_ELECTION_YET = Epoch(0)
"""Epoch of a replica that has not seen an election of a leader yet."""

_NONE = -1

_CHECKPOINTED = "voterCheckpoint"
"""JSON field of `quorum-state` which records that a voter checkpoint must exist beside the file.
Kafka's reader ignores it."""

_STANDING = "voterStanding"
"""JSON field of `quorum-state` that restricts a voter which may have lost its votes or
acknowledgements. Its values are those of `Standing`. Kafka's reader ignores it."""

_WAS_VOTER = "wasVoter"
"""JSON field of `quorum-state` which records that a controller was a voter. Kafka's reader ignores
it."""

_STANDINGS = [standing.value for standing in Standing]


@frozen(kw_only=True)
class ElectionState:
    """Contents of `quorum-state`: the latest known epoch, its leader, and this replica's vote in
    that epoch. Leader and vote may be missing."""

    epoch: Epoch = NO_ELECTION_YET
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None
    standing: Standing = Standing.FULL
    """Standing of this voter: FULL, or a lower value after a loss of votes or of acknowledged
    entries. It is written to `quorum-state` only while it is not FULL."""
    was_voter: bool = False
    """True if this controller was at any time in a committed voter set. Such a controller does not
    join the voters by itself after it was removed."""


def encode(state: ElectionState, *, is_checkpointed: bool = False) -> bytes:
    """Return the bytes of a `quorum-state` file, data version 1 (KIP-853).

    With `is_checkpointed`, the file records that a voter checkpoint must exist beside it.
    """
    voted = state.voted
    fields = {
        "leaderId": _NONE if state.leader_id is None else int(state.leader_id),
        "leaderEpoch": int(state.epoch),
        "votedId": _NONE if voted is None else int(voted.id),
        "votedDirectoryId": _uuid_text(ZERO_UUID if voted is None else voted.directory_id),
        "data_version": 1,
    }
    if is_checkpointed:
        fields[_CHECKPOINTED] = 1
    if state.standing is not Standing.FULL:
        fields[_STANDING] = state.standing.value
    if state.was_voter:
        fields[_WAS_VOTER] = 1
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> ElectionState:
    """Decode a `quorum-state` file of data version 0 or 1.

    Raises CorruptDataError if the file is malformed.
    """
    try:
        fields: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"{QUORUM_STATE_FILE}: not JSON") from error
    if not isinstance(fields, dict) or fields.get("data_version") not in (0, 1):
        raise CorruptDataError(f"{QUORUM_STATE_FILE}: data_version is neither 0 nor 1")
    leader_id = _integer(fields, "leaderId")
    voted_id = _integer(fields, "votedId")
    standing = fields.get(_STANDING, Standing.FULL.value)
    if standing not in _STANDINGS:
        raise CorruptDataError(f"{QUORUM_STATE_FILE}: {_STANDING} is {standing!r}")
    directory_id = _uuid(fields.get("votedDirectoryId", _uuid_text(ZERO_UUID)))
    return ElectionState(
        epoch=Epoch(_integer(fields, "leaderEpoch")),
        leader_id=None if leader_id == _NONE else NodeId(leader_id),
        voted=None if voted_id == _NONE else ReplicaKey(NodeId(voted_id), directory_id),
        standing=Standing(standing),
        was_voter=bool(fields.get(_WAS_VOTER)),
    )


def is_checkpointed(data: bytes) -> bool:
    """Return whether a `quorum-state` file with these bytes records that a voter checkpoint must
    exist beside it."""
    fields: Any = json.loads(data)
    return bool(fields.get(_CHECKPOINTED))


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not _NONE <= value <= INT32_MAX:
        raise CorruptDataError(f"{QUORUM_STATE_FILE}: {name} is {value!r}")
    return value


def _uuid_text(value: UUID) -> str:
    """Return a UUID as URL-safe base64 without padding, as Kafka writes it."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _uuid(text: Any) -> UUID:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))
    except (binascii.Error, ValueError) as error:
        raise CorruptDataError(f"{QUORUM_STATE_FILE}: votedDirectoryId is {text!r}") from error
