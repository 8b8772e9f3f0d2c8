"""Member of a share group (KIP-932): its subscription and its assignment. Pure.

Members are immutable, like the members of consumer groups.
"""

from dataclasses import field

from ottla.broker.coordinators.effects import MemberClient
from ottla.broker.groups.consumer.consumer_member import NO_CLIENT, NOTHING, Assignment
from ottla.model.values import frozen


@frozen(kw_only=True)
class ShareMember:
    """Member of a share group. Its session deadline is stored in the timers of the coordinator
    shard."""

    member_id: str
    rack_id: str | None = None
    client: MemberClient = NO_CLIENT
    subscribed_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    """Previous epoch of the share group member. The coordinator accepts it in addition to the
    current epoch, since the response with the current epoch may be lost."""
    assigned: Assignment = field(default_factory=lambda: NOTHING)

    @property
    def instance_id(self) -> None:
        """Always None, since share groups have no static members."""
        return None

    @property
    def subscription(self) -> tuple[frozenset[str], str]:
        """Topic names to which the share group member subscribes, and an empty regular
        expression."""
        return self.subscribed_names, ""
