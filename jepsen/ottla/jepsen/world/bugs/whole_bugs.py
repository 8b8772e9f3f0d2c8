"""Mutants (deliberate bugs that the simulation must find) in several parts of Ottla, which only
whole clusters of brokers, controllers and clients reveal."""

from dataclasses import replace
from typing import Any

from ottla.broker.coordinators.commit_wait import CommitWait
from ottla.broker.replicas import follower_fetch
from ottla.broker.replicas.follower_fetch import FollowedPartition, FollowerFetch
from ottla.broker.replicas.partition import Partition
from ottla.controller import producer_ids
from ottla.controller.decision import Decision
from ottla.controller.local_forwarding_driver import LocalForwarding
from ottla.controller.replication import elections
from ottla.controller.security import acls
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Offset
from ottla.proto import controller_pb2 as pb
from ottla.storage.log.appender import Appender
from ottla.wire.apis import CREATE_ACLS
from ottla.wire.codec import decode, encode
from ottla.wire.messages.create_acls_request import CreateAclsRequest
from ottla.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from ottla.wire.messages.fetch_response import PartitionData

ENGINE = "whole"
SUBJECT = "cluster"


def _acknowledge_at_append() -> Any:
    original = Partition.acknowledgement

    def acknowledgement(self: Partition, end_offset: Offset, acks: int) -> ErrorCode | None:
        found = original(self, end_offset, acks)
        return ErrorCode.NONE if found is None else found

    return patched(Partition, acknowledgement=acknowledgement)


def _watermark_ahead_of_isr() -> Any:
    def advance(self: Partition, now_ms: int) -> None:
        assert self.log is not None
        if self.durable_end > self.log.high_watermark:
            self.log.update_high_watermark(self.durable_end)
            self._port.wake(self.high_watermark_key)

    return patched(Partition, advance_high_watermark=advance)


def _duplicates_unseen() -> Any:
    return patched(Appender, _duplicate_of=lambda self, *arguments: None)


def _never_cut_back() -> Any:
    original = FollowerFetch._taken

    def taken(
        self: FollowerFetch, followed: FollowedPartition, data: PartitionData, wall_ms: int
    ) -> Any:
        data.diverging_epoch.epoch = NO_EPOCH
        return original(self, followed, data, wall_ms)

    return patched(FollowerFetch, _taken=taken)


def _cut_too_little() -> Any:
    return patched(follower_fetch, truncation_of=lambda log, diverging: log.end_offset)


def _elect_anybody() -> Any:
    return patched(elections, allows_unclean_election=lambda *_: True)


def _commit_answered_at_once() -> Any:
    def try_complete(self: CommitWait) -> bool:
        self._give(ErrorCode.NONE)
        return True

    return patched(CommitWait, try_complete=try_complete)


def _hand_out_the_same_ids() -> Any:
    original = producer_ids.allocate_producer_ids

    def allocate(image: MetadataImage, request: Any) -> Decision[Any]:
        return replace(original(image, request), records=())

    return patched(producer_ids, allocate_producer_ids=allocate)


def _delete_no_entries() -> Any:
    original = acls.delete_acls

    def delete_acls(image: MetadataImage, context: Any, request: Any) -> Decision[Any]:
        return replace(original(image, context, request), records=())

    return patched(acls, delete_acls=delete_acls)


def _answer_without_leading() -> Any:
    original = LocalForwarding.forward

    async def forward(
        self: LocalForwarding, request: pb.ForwardRequest, *, deadline_ms: int
    ) -> pb.ForwardResponse:
        try:
            return await original(self, request, deadline_ms=deadline_ms)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.NOT_CONTROLLER or request.api_key != CREATE_ACLS:
                raise
            version = request.api_version
            wanted = decode(CreateAclsRequest, version, request.body)
            results = [AclCreationResult() for _ in wanted.creations]
            answer = encode(CreateAclsResponse(results=results), version)
            return pb.ForwardResponse(body=answer)

    return patched(LocalForwarding, forward=forward)


def _mutant(
    name: str,
    sentence: str,
    plant: Plant,
    seed_count: int,
    *,
    is_quick: bool = False,
    subject: str = SUBJECT,
) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine=ENGINE,
        subject=subject,
        plant=plant,
        seed_count=seed_count,
        is_quick=is_quick,
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "acknowledged-at-append",
        "acks=all is answered when only the leader has the records",
        _acknowledge_at_append,
        60,
        is_quick=True,
    ),
    _mutant(
        "watermark-at-leader-end",
        "the high watermark is the leader's end offset, even if ISR members lag",
        _watermark_ahead_of_isr,
        60,
    ),
    _mutant(
        "duplicates-appended",
        "a retried batch is appended again",
        _duplicates_unseen,
        60,
        is_quick=True,
    ),
    _mutant(
        "follower-never-cut-back",
        "a follower appends after records that its new leader never had",
        _never_cut_back,
        60,
    ),
    _mutant(
        "follower-cut-too-little",
        "a follower keeps all its records when it diverges from its leader",
        _cut_too_little,
        60,
    ),
    _mutant(
        "commit-answered-at-append",
        "a group's commit is answered before the in-sync replicas have it",
        _commit_answered_at_once,
        60,
    ),
    _mutant(
        "anybody-elected",
        "a replica out of sync may be elected, against the topic's settings",
        _elect_anybody,
        60,
    ),
    _mutant(
        "producer-ids-again",
        "a block of producer ids is allocated without a record, so the next one is the same",
        _hand_out_the_same_ids,
        60,
    ),
    _mutant(
        "deletion-not-recorded",
        "the deletion of ACLs is answered without a record",
        _delete_no_entries,
        60,
        subject="acls",
    ),
    _mutant(
        "standby-acknowledges",
        "a controller that is not active acknowledges a client's new ACLs",
        _answer_without_leading,
        20,
        subject="controller-clients",
    ),
)
