"""One share group (KIP-932): its members, epochs and partitions. Pure.

Members of a share group may consume a partition together. An assignment therefore needs no
revocation: a member gets its target assignment in its next heartbeat response.
"""

from enum import StrEnum
from typing import ClassVar

from ottla.broker.groups.consumer.assigned_group import AssignedGroup
from ottla.broker.groups.share.share_member import ShareMember
from ottla.broker.groups.share.share_partitions import SharePartitions
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError

SHARE = "share"
"""Group type and protocol type of share groups in ListGroups responses."""


class ShareGroupState(StrEnum):
    """States of a share group, with the names that Kafka's responses use."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ShareGroup(AssignedGroup[ShareMember]):
    """Members of one share group, their target assignments, and the partitions that they
    consume."""

    type: ClassVar[str] = SHARE

    __slots__ = ("partitions", "searched")

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, SHARE)
        self.partitions = SharePartitions()
        self.searched: tuple[frozenset[str], MetadataImage] | None = None
        """Subscribed topics and metadata image of the last search for partitions without durable
        state, if that search found no such partition. The search is not repeated with the same
        inputs."""

    def __repr__(self) -> str:
        return f"ShareGroup({self.group_id!r}, {self.state_name}, epoch {self.group_epoch})"

    @property
    def state(self) -> ShareGroupState:
        """State of the share group, as reported in responses."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        """Name of the group's state as Kafka's responses write it."""
        return self.state.value

    @property
    def is_unused(self) -> bool:
        """Always False, because a share group without members keeps its offsets until it is
        deleted."""
        return False


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Raise RefusedError if the epoch in a request is neither the share group member's current
    epoch nor its previous epoch. Epoch 0 is accepted, because a member joins again with this
    epoch."""
    if epoch in (0, member.member_epoch):
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch:
        return
    size = "greater" if epoch > member.member_epoch else "smaller"
    raise RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {size} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.member_epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )
