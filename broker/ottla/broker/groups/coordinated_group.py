"""Base class of the groups of all kinds: classic, consumer and share. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar

from ottla.model.compiled import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class CoordinatedGroup(ABC):
    """Group of any kind (classic, consumer or share), stored in a shard of the group
    coordinator."""

    type: ClassVar[str]
    """Group type (such as `consumer`) that ListGroups responses report (KIP-848)."""

    __slots__ = ("group_id", "protocol_type")

    def __init__(self, group_id: str, protocol_type: str | None) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        """Protocol type that ListGroups responses report, or None before the first member has
        joined."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Name of the group's state as Kafka's responses write it."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if the group has no members."""

    @property
    def is_unused(self) -> bool:
        """True if the group may be deleted once it has no committed offsets."""
        return self.is_empty

    @property
    @abstractmethod
    def member_ids(self) -> Collection[str]:
        """Ids of the group's members."""

    @abstractmethod
    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the names of the topics to which the group's members subscribe, or None if they
        are unknown."""

    def used_topics(self) -> frozenset[str] | None:
        """Return the names of the topics whose committed offsets do not expire, or None if no
        offset of any topic expires."""
        return self.subscribed_topics()

    @property
    def emptied_ms(self) -> int:
        """Wall time in milliseconds at which the last member left the group, or -1 if unknown. The
        retention of the group's offsets counts from this time."""
        return -1
