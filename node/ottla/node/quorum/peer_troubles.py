"""Explanations, for operators, of why other members of the quorum refuse requests of this member or
do not respond.

Pure. A refusal that retries cannot resolve is a problem until the peer accepts a request of this
member again. Refusals and unreachable peers are logged immediately and then once a minute, not at
every retry.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft.voters import QuorumIdentity
from ottla.storage.directories.meta_properties import uuid_to_text

REPEAT_MS = 60_000
"""Interval in ms between log messages about one problem with a peer. A shorter interval fills the
log; with a longer one, the problem is easy to miss."""

SILENCE_MS = 5_000
"""Time in ms for which a peer in the quorum must be unreachable before this is logged. It exceeds
the duration of a restart or an election."""


@dataclass(slots=True)
class _Trouble:
    sentence: str
    said_ms: int


class PeerTroubles:
    """Problems of one quorum member with its peers, and the time when each problem was last
    logged."""

    def __init__(self, identity: Callable[[], QuorumIdentity]) -> None:
        self._identity_now = identity
        self._refusals: dict[NodeId, _Trouble] = {}
        self._silent_since_ms: dict[NodeId, int] = {}
        self._silence_said_ms: dict[NodeId, int] = {}
        self._rejection_logged_ms: dict[NodeId, int] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Descriptions of the peers' refusals that retries cannot resolve, ordered by the peers'
        ids."""
        return tuple(self._refusals[node_id].sentence for node_id in sorted(self._refusals))

    def on_answer(self, node_id: NodeId, error: ErrorCode, now_ms: int) -> str | None:
        """Process the error code in a peer's response. Returns a message to log, or None if there
        is nothing to log."""
        self._silent_since_ms.pop(node_id, None)
        self._silence_said_ms.pop(node_id, None)
        sentence = self._refusal(node_id, error)
        if sentence is None:
            self._refusals.pop(node_id, None)
            return None
        known = self._refusals.get(node_id)
        if known is not None and known.sentence == sentence and now_ms < known.said_ms + REPEAT_MS:
            return None
        self._refusals[node_id] = _Trouble(sentence, now_ms)
        return sentence

    @property
    def _identity(self) -> QuorumIdentity:
        return self._identity_now()

    def on_silence(self, node_id: NodeId, why: str, now_ms: int) -> str | None:
        """Process a request that got no response from a peer. `why` is the error. Returns a message
        to log, or None if there is nothing to log."""
        silent_ms = now_ms - self._silent_since_ms.setdefault(node_id, now_ms)
        said_ms = self._silence_said_ms.get(node_id)
        if silent_ms < SILENCE_MS or (said_ms is not None and now_ms < said_ms + REPEAT_MS):
            return None
        self._silence_said_ms[node_id] = now_ms
        return f"{self._peer(node_id)} has not answered for {silent_ms // 1000} s ({why})"

    def on_rejected_response(self, node_id: NodeId, why: str, now_ms: int) -> str | None:
        """Process a response from a peer that cannot be correct. `why` is the reason. Returns a
        message to log, or None if there is nothing to log."""
        said_ms = self._rejection_logged_ms.get(node_id)
        if said_ms is not None and now_ms < said_ms + REPEAT_MS:
            return None
        self._rejection_logged_ms[node_id] = now_ms
        return f"{self._peer(node_id)} gave an answer that cannot be true, and was refused: {why}"

    def _refusal(self, node_id: NodeId, error: ErrorCode) -> str | None:
        """Return an explanation of a peer's refusal that retries cannot resolve, or None for any
        other error code."""
        peer = self._peer(node_id)
        match error:
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                return (
                    f"{peer} belongs to another cluster than this node's"
                    f" {self._identity.cluster_id}; correct controller.quorum.bootstrap.servers or"
                    " controller.quorum.voters"
                )
            case ErrorCode.INVALID_VOTER_KEY:
                return (
                    f"{peer} does not have the directory {self._directory_of(node_id)} it votes"
                    " with, so it was wiped and may not vote; bring its old directory back"
                )
            case ErrorCode.INCONSISTENT_VOTER_SET:
                own = uuid_to_text(self._identity.directory_id)
                return (
                    f"{peer} knows no voter {self._identity.node_id} with this node's directory"
                    f" {own}, so it was wiped or formatted again; bring its old directory back"
                )
            case _:
                return None

    def _peer(self, node_id: NodeId) -> str:
        identity = self._identity
        unnamed = (one.endpoints for one in identity.bootstrap if one.id == node_id)
        endpoints = identity.voters.endpoints_of(node_id) or next(unnamed, ())
        if node_id < 0 and endpoints:
            return f"the controller at {endpoints[0].host}:{endpoints[0].port}"
        at = f" at {endpoints[0].host}:{endpoints[0].port}" if endpoints else ""
        return f"controller {node_id}{at}"

    def _directory_of(self, node_id: NodeId) -> str:
        voter = self._identity.voters.get(node_id)
        return "?" if voter is None else uuid_to_text(voter.directory_id)
