"""One member of a classic group: its protocols, timeouts and waiting requests. Pure."""

from typing import NamedTuple

from ottla.broker.coordinators.effects import MemberClient, Responder


class Protocol(NamedTuple):
    """Assignment protocol that a member of a classic group supports, with the member's metadata for
    the group's leader."""

    name: str
    metadata: bytes


class ClassicMember:
    """Member of a classic group. Its session deadline is stored in the timers of the coordinator
    shard."""

    __slots__ = (
        "assignment",
        "client",
        "instance_id",
        "is_new",
        "join_responder",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_responder",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client: MemberClient,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: tuple[Protocol, ...] | tuple[tuple[str, bytes], ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client = client
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = tuple(Protocol(*protocol) for protocol in protocols)
        """Assignment protocols that the member supports, in its order of preference."""
        self.assignment = assignment
        self.is_new = False
        """True until the member's first generation begins. Before that, the member cannot send
        heartbeats."""
        self.join_responder: Responder | None = None
        self.sync_responder: Responder | None = None

    @property
    def is_waiting(self) -> bool:
        """True while a JoinGroup or SyncGroup request of the member is waiting. Meanwhile the
        member cannot send heartbeats."""
        return self.join_responder is not None or self.sync_responder is not None

    def metadata_for(self, protocol: str) -> bytes:
        """Return the member's metadata for an assignment protocol, or empty bytes if the member
        does not support the protocol."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""
