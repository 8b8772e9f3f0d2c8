"""Creates topics that a client requested and that do not exist yet (`auto.create.topics.enable`).

At most one request for each name is in flight to the controller. If a thousand clients request the
same new topic, the broker sends one request. All of these clients wait for the metadata image with
the topic.
"""

from collections.abc import Callable, Mapping, Sequence

from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.admin.forwarding import ForwardingPort, forward_as
from ottla.node.network.dispatch import RequestContext
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

CREATE_TOPICS_VERSION = 7
CLUSTER_DEFAULT = -1
"""Value of the partition count or replication factor in a CreateTopics request that selects the
cluster's default."""


class Attempt:
    """Request to the controller to create topics, and its outcome. `refused` contains the names of
    the topics that the controller refused, or all names if the request failed. It is empty until
    the outcome is known."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused: frozenset[str] = frozenset()


class AutoCreate:
    """Sends requests to create missing topics to the controller. `on_refused` wakes the requests
    that wait for a topic whose creation was refused."""

    def __init__(
        self,
        controller: ForwardingPort,
        *,
        timeout_ms: int,
        on_refused: Callable[[], object],
        internal: Mapping[str, CreatableTopic] | None = None,
    ) -> None:
        """Create the sender. `internal` contains the specifications of internal topics by name;
        other topics get the cluster's defaults."""
        self._controller = controller
        self._internal = internal or {}
        self._timeout_ms = timeout_ms
        self._on_refused = on_refused
        self._under_way: dict[str, Attempt] = {}

    async def create(self, context: RequestContext, names: Sequence[str]) -> list[Attempt]:
        """Request the creation of topics from the controller. Returns the requests in flight that
        create these topics, including requests for earlier clients."""
        attempts = {self._under_way[name] for name in names if name in self._under_way}
        mine = sorted(set(names) - self._under_way.keys())
        if mine:
            attempt = Attempt()
            attempts.add(attempt)
            self._under_way.update(dict.fromkeys(mine, attempt))
            try:
                attempt.refused = await self._ask(context, mine)
            finally:
                for name in mine:
                    del self._under_way[name]
            if attempt.refused:
                self._on_refused()
        return list(attempts)

    async def _ask(self, context: RequestContext, names: list[str]) -> frozenset[str]:
        topics = [
            self._internal.get(name)
            or CreatableTopic(
                name=name, num_partitions=CLUSTER_DEFAULT, replication_factor=CLUSTER_DEFAULT
            )
            for name in names
        ]
        try:
            response = await forward_as(
                CreateTopicsResponse,
                self._controller,
                context,
                CreateTopicsRequest(topics=topics, timeout_ms=self._timeout_ms),
                version=CREATE_TOPICS_VERSION,
                timeout_ms=self._timeout_ms,
                # Not charged to the client: its groups must be coordinated even if its quota is
                # exceeded.
                is_own=all(name in self._internal for name in names),
            )
        except RefusedError:
            # The client gets UNKNOWN_TOPIC_OR_PARTITION, and retries.
            return frozenset(names)
        return frozenset(
            result.name
            for result in response.topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        )
