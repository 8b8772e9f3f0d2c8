"""The share session with one broker: its epoch, its partitions and its requests (KIP-932).

Pure. A session belongs to a connection. A request with epoch 0 opens a session, or replaces an
earlier session. Each further request has the next epoch. Epoch -1 closes the session. A request
contains the partitions that are added to the session and the partitions that are removed from it.
Invariants:
- OneAtATime: a request is created only after the response to the previous request was processed.
- OnlyWantedJoin: a fetch contains acknowledgements only of partitions that it fetches. All others
  are sent in a ShareAcknowledge request, because a fetch would add their partitions to the session.
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from ottla.client.share.acknowledgement_ranges import AcknowledgementRange
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicIdPartition
from ottla.model.limits import INT32_MAX
from ottla.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.wire.messages.share_fetch_request import AcknowledgementBatch as FetchAcknowledgement
from ottla.wire.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

OPENING_EPOCH = 0
FINAL_EPOCH = -1
Acknowledged = Mapping[TopicIdPartition, Sequence[AcknowledgementRange]]

LOST_SESSION = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""Error codes which mean that the broker does not know the session. The next fetch then opens a new
session."""

NO_SHARE_GROUPS = (
    "the cluster has no share groups; upgrade the brokers and the feature share.version"
)
"""Error message if a broker does not support share groups, and therefore refuses a request with
UNSUPPORTED_VERSION."""


class ShareSessionHandler:
    """State of the share session of one group member with one broker."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self._group_id = group_id
        self._member_id = member_id
        self._epoch = OPENING_EPOCH
        self._partitions: set[TopicIdPartition] = set()
        self._next_partitions: set[TopicIdPartition] = set()
        """Partitions that the session will have once the request in flight has succeeded."""

    @property
    def is_open(self) -> bool:
        """True if the broker knows the share session."""
        return self._epoch != OPENING_EPOCH

    def fill_fetch(
        self, request: ShareFetchRequest, wanted: Collection[TopicIdPartition], acks: Acknowledged
    ) -> None:
        """Complete a fetch request: add the session's id and epoch, the partitions that were added
        or removed, and acknowledgements of wanted partitions."""
        assert self.is_open or not acks, "the request that opens a session acknowledges nothing"
        wanted = set(wanted)
        assert acks.keys() <= wanted
        request.group_id, request.member_id = self._group_id, self._member_id
        request.share_session_epoch = self._epoch
        named = (wanted - self._partitions) | acks.keys()
        by_topic: dict[UUID, list[FetchPartition]] = {}
        for at in sorted(named):
            batches = [
                FetchAcknowledgement(
                    first_offset=one.first, last_offset=one.last, acknowledge_types=[*one.types]
                )
                for one in acks.get(at, ())
            ]
            by_topic.setdefault(at.topic_id, []).append(
                FetchPartition(partition_index=at.partition, acknowledgement_batches=batches)
            )
        request.topics = [
            FetchTopic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic.items()
        ]
        forgotten: dict[UUID, list[int]] = {}
        for at in sorted(self._partitions - wanted):
            forgotten.setdefault(at.topic_id, []).append(at.partition)
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=topic_id, partitions=found)
            for topic_id, found in forgotten.items()
        ]
        self._next_partitions = wanted

    def acknowledge_request(
        self, acks: Acknowledged, *, is_renewal: bool = False, is_last: bool = False
    ) -> ShareAcknowledgeRequest:
        """Return a request that acknowledges records or, with `is_renewal`, renews locks. With
        `is_last`, the request also closes the session."""
        assert self.is_open, "only an open session acknowledges"
        by_topic: dict[UUID, list[AcknowledgePartition]] = {}
        for at in sorted(acks):
            batches = [
                AcknowledgementBatch(
                    first_offset=one.first, last_offset=one.last, acknowledge_types=[*one.types]
                )
                for one in acks[at]
            ]
            by_topic.setdefault(at.topic_id, []).append(
                AcknowledgePartition(partition_index=at.partition, acknowledgement_batches=batches)
            )
        self._next_partitions = self._partitions
        return ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else self._epoch,
            is_renew_ack=is_renewal,
            topics=[
                AcknowledgeTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in by_topic.items()
            ],
        )

    def on_success(self) -> None:
        """Record that the broker has accepted the latest request."""
        self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1
        self._partitions = self._next_partitions

    def on_loss(self) -> None:
        """Discard the session, so that the next fetch opens a new one."""
        self._epoch = OPENING_EPOCH
        self._partitions = set()
