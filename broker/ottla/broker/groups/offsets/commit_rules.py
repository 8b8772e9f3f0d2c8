"""Checks members and epochs in requests that commit or fetch a group's offsets. Pure."""

from typing import NamedTuple

from ottla.broker.groups.classic.classic_group import ClassicGroup, GroupState
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, unknown_member
from ottla.broker.groups.consumer.consumer_member import ConsumerMember
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest

GENERATION_REFUSED_AS_UNKNOWN_GROUP_FROM = 9
"""First version of OffsetCommit that returns GROUP_ID_NOT_FOUND for a group that does not exist.
Earlier versions return ILLEGAL_GENERATION (KIP-848)."""

TRANSACTIONAL_CODES_FROM = 6
"""First version of TxnOffsetCommit that has separate error codes for unknown groups and unknown
epochs."""

MEMBER_EPOCH_FROM = 9
"""First version of OffsetCommit in which members of the consumer protocol may commit."""


def check_commit_of_no_group(request: OffsetCommitRequest, version: int) -> None:
    """Raise RefusedError if an OffsetCommit request names a generation of a group that does not
    exist."""
    if request.generation_id_or_member_epoch >= 0:
        is_named = version >= GENERATION_REFUSED_AS_UNKNOWN_GROUP_FROM
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_named else ErrorCode.ILLEGAL_GENERATION
        raise RefusedError(code)


def check_classic_commit(group: ClassicGroup, request: OffsetCommitRequest) -> None:
    """Raise RefusedError if an OffsetCommit request does not come from a member of the classic
    group's current generation."""
    generation_id = request.generation_id_or_member_epoch
    is_member = bool(request.member_id) or request.group_instance_id is not None
    if generation_id < 0 and not is_member:
        # A client outside the group would overwrite the offsets of its members.
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)
    group.find(request.member_id, request.group_instance_id)
    if generation_id != group.generation_id:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member joined, and may have lost the partition.  It must fetch its assignment first.
        raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)


def check_consumer_commit(group: ConsumerGroup, request: OffsetCommitRequest, version: int) -> None:
    """Raise RefusedError if an OffsetCommit request names a member that is not in the consumer
    group, or an epoch that is not the member's current epoch."""
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.group_id, request.member_id)
    if member.classic is None and version < MEMBER_EPOCH_FROM:
        raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
    _check_epoch(member, request.generation_id_or_member_epoch)


class TransactionalCommit(NamedTuple):
    """A TxnOffsetCommit request, which commits offsets in a transaction, and its version."""

    request: TxnOffsetCommitRequest
    version: int


def check_transactional_commit_of_no_group(request: TxnOffsetCommitRequest, version: int) -> None:
    """Raise RefusedError if a TxnOffsetCommit request names a generation of a group that does not
    exist."""
    if request.generation_id_or_member_epoch >= 0:
        has_own_codes = version >= TRANSACTIONAL_CODES_FROM
        code = ErrorCode.GROUP_ID_NOT_FOUND if has_own_codes else ErrorCode.ILLEGAL_GENERATION
        raise RefusedError(code)


def names_member(request: TxnOffsetCommitRequest) -> bool:
    """Return whether a TxnOffsetCommit request names a group member.

    Requests of clients before KIP-447 name no member. Such clients are fenced only by their
    producer epoch.
    """
    is_named = bool(request.member_id) or request.group_instance_id is not None
    return request.generation_id_or_member_epoch >= 0 or is_named


def check_classic_transactional_commit(
    group: ClassicGroup, request: TxnOffsetCommitRequest
) -> None:
    """Raise RefusedError if a TxnOffsetCommit request names a member or generation that the classic
    group does not have."""
    group.find(request.member_id, request.group_instance_id)
    if request.generation_id_or_member_epoch != group.generation_id:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION)


def check_consumer_transactional_commit(
    group: ConsumerGroup, request: TxnOffsetCommitRequest, version: int
) -> None:
    """Raise RefusedError if a TxnOffsetCommit request names a member or epoch that the consumer
    group does not have."""
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.group_id, request.member_id)
    try:
        _check_epoch(member, request.generation_id_or_member_epoch)
    except RefusedError:
        if version >= TRANSACTIONAL_CODES_FROM:
            raise
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION) from None


def check_consumer_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Raise RefusedError if an OffsetFetch request names a member or epoch that the consumer group
    does not have."""
    if member_id is None and member_epoch < 0:
        return
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id or "")
    _check_epoch(member, member_epoch)


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.member_epoch:
        # The member may have lost the partition in its next epoch.  It can retry with that epoch.
        is_classic = member.classic is not None
        code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
        raise RefusedError(code)
