"""Group kinds: one interface for the rules of each kind of group. Pure.

A shard stores groups of several kinds under one namespace of ids. `CoordinatedGroup.type` names the
kind of a group, and the shard delegates every decision to this kind. A new kind (streams groups) is
a `CoordinatedGroup`, a `GroupKind` and a row in the table of `shard.py`. Requests that exist for
only one kind are methods of its `GroupKind`, which their handlers call.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

from ottla.broker.coordinators.effects import Instant, Outbox, Responder
from ottla.broker.groups.classic.rebalance import Join, failed_join
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.timer_names import TimerName
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.codec_types import Message
from ottla.wire.messages.describe_groups_response import DescribedGroup
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.leave_group_request import MemberIdentity
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.sync_group_request import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

GroupT = TypeVar("GroupT", bound=CoordinatedGroup)


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupKind(ABC, Generic[GroupT]):
    """Rules for the groups of one kind (classic, consumer or share) in one shard of the group
    coordinator."""

    keys: ClassVar[tuple[type[Message], ...]]
    """Classes of record keys in `__consumer_offsets` that belong to groups of this kind."""
    type: ClassVar[str]
    """Value of `CoordinatedGroup.type` for groups of this kind."""
    has_offsets: ClassVar[bool] = True
    """False if groups of this kind have no committed offsets, as for share groups."""

    def __init__(self, groups: MutableMapping[str, CoordinatedGroup], outbox: Outbox) -> None:
        """Create the rules for one shard of the group coordinator. `groups` contains the groups of
        all kinds in the shard, by group id."""
        self._groups = groups
        self._outbox = outbox

    # ---- groups

    def find(self, group_id: str) -> GroupT | None:
        """Return the group of this kind with an id, or None if this kind has no such group."""
        group = self._groups.get(group_id)
        return cast(GroupT, group) if group is not None and group.type == self.type else None

    def all(self) -> list[GroupT]:
        """Return all groups of this kind in the coordinator shard."""
        return [cast(GroupT, group) for group in self._groups.values() if group.type == self.type]

    def prepare_deletion(
        self, group: GroupT, responder: Responder, delete_again: Callable[[], None]
    ) -> bool:
        """Return True if an empty group can be deleted now.

        Otherwise, start to delete the data that the group has outside this shard, and return False.
        `delete_again` is called after the deletion of this data. If the data cannot be deleted,
        `responder` is called with an error code instead.
        """
        return True

    @abstractmethod
    def delete(self, group: GroupT) -> None:
        """Delete an empty group and write the tombstones of its records."""

    def describe(self, group: GroupT) -> DescribedGroup | None:
        """Return the DescribeGroups response of a group, or None if DescribeGroups does not
        describe groups of this kind."""
        return None

    # ---- the log

    @abstractmethod
    def replay(self, key: Any, value: Message | None) -> None:
        """Apply a record from the log to its group. The record's key class is one of `keys`."""

    @abstractmethod
    def resume(self, group: GroupT, now: Instant) -> int:
        """Start to serve a group that was loaded from the log. Returns the number of entries
        checked, as a measure of the cost."""

    # ---- time and topics

    @abstractmethod
    def on_timer(self, group: GroupT, name: TimerName, now: Instant) -> None:
        """Handle an expired deadline of a group or of one of its members."""

    @abstractmethod
    def restart_sessions(self, group: GroupT, now: Instant) -> None:
        """Restart the session timeout of every member of a group."""

    def on_topics(self, group: GroupT, changed: frozenset[str], now: Instant) -> int:
        """Apply changes of topics to a group. Returns the number of entries that were checked, as a
        measure of the cost."""
        return 0

    def used_regexes(self, group: GroupT) -> Iterable[str]:
        """Return the regular expressions to which the members of a group subscribe."""
        return ()

    def take_waiting(self) -> Iterator[Responder]:
        """Remove and yield the callbacks of the waiting requests of all groups of this kind."""
        return iter(())

    # ---- requests of the classic protocol, which clients may send to any group

    def join(self, group: GroupT, join: Join, now: Instant) -> None:
        """Handle a JoinGroup request to a group. By default it is refused."""
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        self._outbox.answer(join.responder, failed_join(code, join.request.member_id))

    def sync(
        self, group: GroupT, request: SyncGroupRequest, responder: Responder, now: Instant
    ) -> None:
        """Handle a SyncGroup request to a group. By default it is refused."""
        self._outbox.answer(responder, ErrorCode.UNKNOWN_MEMBER_ID)

    def heartbeat(self, group: GroupT, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        """Handle a Heartbeat request to a group. Returns the error code of the response, by default
        UNKNOWN_MEMBER_ID."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(
        self, group: GroupT, members: Sequence[MemberIdentity], now: Instant
    ) -> list[ErrorCode]:
        """Handle a LeaveGroup request to a group. Returns an error code for each member, by default
        UNKNOWN_MEMBER_ID."""
        return [ErrorCode.UNKNOWN_MEMBER_ID] * len(members)

    # ---- offsets

    def check_commit(self, group: GroupT, request: OffsetCommitRequest, version: int) -> None:
        """Raise RefusedError if the member that an OffsetCommit request names may not commit
        offsets."""
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_transactional_commit(
        self, group: GroupT, request: TxnOffsetCommitRequest, version: int
    ) -> None:
        """Raise RefusedError if the member that a TxnOffsetCommit request names may not commit
        offsets in a transaction."""
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_fetch(self, group: GroupT, member_id: str | None, member_epoch: int) -> None:
        """Raise RefusedError if the member that an OffsetFetch request names may not fetch the
        group's offsets."""

    def keep_alive(self, group: GroupT, member_id: str, now: Instant) -> None:
        """Restart the session timeout of a group member, since it has committed offsets."""
