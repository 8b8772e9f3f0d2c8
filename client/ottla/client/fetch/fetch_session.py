"""The client's side of a fetch session: the first request contains all partitions, and later
requests only changes (KIP-227).

Pure. The fetcher reports each change of its wanted partitions. A request contains the changes since
the previous request, or all partitions if a new session has to be opened. Invariant: NothingIsLost.
If a response is lost, the session ends, and the next request contains all partitions again.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias
from uuid import UUID

from ottla.model.errors import RefusedError, code_of
from ottla.model.ids import TopicIdPartition, TopicPartition
from ottla.model.limits import INT32_MAX
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_request import ForgottenTopic as Forgotten
from ottla.wire.messages.fetch_response import FetchResponse

NO_SESSION = 0
INITIAL_EPOCH = 0

TopicKey: TypeAlias = TopicIdPartition | TopicPartition
"""Identity of a partition in fetch requests: by topic id or, before version 13, by topic name. One
session uses only one of the two forms."""


class FetchSessionHandler:
    """State of one fetch session: the partitions that one fetcher wants from one broker, and the
    partitions that the broker already knows."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_session_id", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[TopicKey, FetchPartition] = {}
        self._changed: dict[TopicKey, FetchPartition] = {}
        self._forgotten: dict[TopicKey, None] = {}
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, partition: TopicKey, asked: FetchPartition) -> None:
        """Add a partition to the session, or change its fetch position and limits. The change is
        part of the next request."""
        self._wanted[partition] = asked
        self._changed[partition] = asked
        self._forgotten.pop(partition, None)

    def forget(self, partition: TopicKey) -> None:
        """Remove a partition from the session. The change takes effect with the next request."""
        if self._wanted.pop(partition, None) is not None:
            self._changed.pop(partition, None)
            self._forgotten[partition] = None

    def fill(self, request: FetchRequest) -> None:
        """Add the session's id and epoch to `request`, and the changes since the previous
        request."""
        request.session_id = self._session_id
        request.session_epoch = self._epoch
        if self._epoch == INITIAL_EPOCH:
            request.topics = _by_topic(self._wanted.items())
        else:
            request.topics = _by_topic(self._changed.items())
            request.forgotten_topics_data = _forgotten(self._forgotten)
        self._changed.clear()
        self._forgotten.clear()

    def take(self, response: FetchResponse) -> None:
        """Update the session from the response to the latest request.

        Raises RefusedError if the broker refuses the session.
        """
        if response.error_code:
            self.reset()
            raise RefusedError(code_of(response.error_code))
        if response.session_id == NO_SESSION:
            # The broker has no room for a session, so each request contains all partitions.
            self.reset()
            self._session_id = NO_SESSION
            return
        self._session_id = response.session_id
        self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def reset(self) -> None:
        """Discard the session, because a response was lost or the broker refused the session. The
        next request opens a new one.

        That request still contains the id of the old session, so that the broker can free it.
        """
        self._epoch = INITIAL_EPOCH
        self._changed.clear()
        self._forgotten.clear()


def _by_topic(asked: Iterable[tuple[TopicKey, FetchPartition]]) -> list[FetchTopic]:
    topics: dict[UUID | str, FetchTopic] = {}
    for (topic, _), partition in asked:
        if topic not in topics:
            topics[topic] = FetchTopic(**_named(topic))
        topics[topic].partitions.append(partition)
    return list(topics.values())


def _forgotten(partitions: Iterable[TopicKey]) -> list[Forgotten]:
    topics: dict[UUID | str, Forgotten] = {}
    for topic, index in partitions:
        if topic not in topics:
            topics[topic] = Forgotten(**_named(topic))
        topics[topic].partitions.append(index)
    return list(topics.values())


def _named(topic: UUID | str) -> dict[str, Any]:
    return {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
