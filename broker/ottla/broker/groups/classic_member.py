"""One member of a classic group.  Pure."""

from typing import NamedTuple

from ottla.broker.groups.effects import Asker, MemberClient


class Protocol(NamedTuple):
    """A way to share the work that a member knows, and what it says to the leader about it."""

    name: str
    metadata: bytes


class ClassicMember:
    """What the group knows of one client; its session's deadline is kept by the group's timers."""

    __slots__ = (
        "assignment",
        "client",
        "instance_id",
        "is_new",
        "join_asker",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_asker",
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
        """The best liked comes first."""
        self.assignment = assignment
        self.is_new = False
        """It waits for its first generation: it cannot send heartbeats yet."""
        self.join_asker: Asker | None = None
        self.sync_asker: Asker | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether one of its requests is held here: it cannot send heartbeats meanwhile."""
        return self.join_asker is not None or self.sync_asker is not None

    def metadata_for(self, protocol: str) -> bytes:
        """Return what it says to the leader under a protocol; nothing if it does not know it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""
