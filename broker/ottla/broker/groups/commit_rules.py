"""Who may commit the offsets of a group, and who may ask for them as its member.  Pure."""

from typing import NamedTuple

from ottla.broker.groups.classic_group import ClassicGroup, GroupState
from ottla.broker.groups.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer_member import ConsumerMember
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

GENERATION_REFUSED_AS_UNKNOWN_GROUP_FROM = 9
"""Before it, OffsetCommit answers ILLEGAL_GENERATION for a group that does not exist (KIP-848)."""

TRANSACTIONAL_CODES_FROM = 6
"""The first version of TxnOffsetCommit with codes of its own for unknown groups and epochs."""

MEMBER_EPOCH_FROM = 9
"""The first version of OffsetCommit in which members of the consumer protocol may commit."""


def check_commit(
    group: ClassicGroup | ConsumerGroup | None, request: OffsetCommitRequest, version: int
) -> None:
    """Refuse a commit of somebody who is not in the group's generation, or in its own epoch.

    Whoever uses no group but its offsets (without a generation) may commit while nobody is in it.
    """
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id >= 0:
            is_named = version >= GENERATION_REFUSED_AS_UNKNOWN_GROUP_FROM
            code = ErrorCode.GROUP_ID_NOT_FOUND if is_named else ErrorCode.ILLEGAL_GENERATION
            raise RefusedError(code)
    elif generation_id < 0 and group.is_empty:
        return
    elif isinstance(group, ConsumerGroup):
        _check_consumer(group, request, version)
    else:
        _check_classic(group, request)


def _check_classic(group: ClassicGroup, request: OffsetCommitRequest) -> None:
    generation_id = request.generation_id_or_member_epoch
    is_member = bool(request.member_id) or request.group_instance_id is not None
    if generation_id < 0 and not is_member:
        # Somebody outside the group would overwrite what its members commit.
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.find(request.member_id, request.group_instance_id)
    if generation_id != group.generation_id:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # It joined, and may have lost the partition: it is to fetch its assignment first.
        raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)


def _check_consumer(group: ConsumerGroup, request: OffsetCommitRequest, version: int) -> None:
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.group_id, request.member_id)
    if member.classic is None and version < MEMBER_EPOCH_FROM:
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
    _check_epoch(member, request.generation_id_or_member_epoch)


class TransactionalCommit(NamedTuple):
    """A commit of offsets in a transaction, and the version it was sent in."""

    request: TxnOffsetCommitRequest
    version: int


def check_transactional_commit(
    group: ClassicGroup | ConsumerGroup | None, request: TxnOffsetCommitRequest, version: int
) -> None:
    """Refuse a commit in a transaction of who names a member or generation that is not there.

    Clients of before KIP-447 name neither, and are fenced by their producer's epoch alone.
    """
    epoch = request.generation_id_or_member_epoch
    has_own_codes = version >= TRANSACTIONAL_CODES_FROM
    if group is None:
        if epoch >= 0:
            unknown = ErrorCode.GROUP_ID_NOT_FOUND
            raise RefusedError(unknown if has_own_codes else ErrorCode.ILLEGAL_GENERATION)
        return
    is_named = bool(request.member_id) or request.group_instance_id is not None
    if epoch < 0 and (group.is_empty or not is_named):
        return
    if isinstance(group, ClassicGroup):
        group.find(request.member_id, request.group_instance_id)
        if epoch != group.generation_id:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
        return
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.group_id, request.member_id)
    try:
        _check_epoch(member, epoch)
    except RefusedError:
        if has_own_codes:
            raise
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION) from None


def check_fetch(
    group: ClassicGroup | ConsumerGroup | None, member_id: str | None, member_epoch: int
) -> None:
    """Refuse a fetch of offsets by who says that it is a member in an epoch, and is not.

    The classic protocol has no such fence, and nobody need say who asks.
    """
    if not isinstance(group, ConsumerGroup) or (member_id is None and member_epoch < 0):
        return
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id or "")
    _check_epoch(member, member_epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.member_epoch:
        # It may have lost the partition with its next epoch; when it knows that, it may come again.
        is_classic = member.classic is not None
        code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
        raise RefusedError(code)


def unknown_member(group_id: str, member_id: str) -> RefusedError:
    """Return the refusal of who is not in a group."""
    return RefusedError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
    )
