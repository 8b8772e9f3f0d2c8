"""Topics that are made because a client asked for them (`auto.create.topics.enable`).

Each name is on its way to the controller once at a time: a thousand clients that ask for the same
new topic cost one request, and everybody waits for the image to show it.
"""

from collections.abc import Callable, Mapping, Sequence

from ottla.broker.cluster.forwarding import ControllerDoor, forward_as
from ottla.broker.network.dispatch import RequestContext
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

CREATE_TOPICS_VERSION = 7
CLUSTER_DEFAULT = -1
"""As a number of partitions or replicas: what the cluster's settings say."""


class Attempt:
    """One request for topics under way; `refused` names those that it will not bring."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused: frozenset[str] = frozenset()


class AutoCreate:
    """Asks the controller for topics; `on_refused` wakes who waits for one that will not come."""

    def __init__(
        self,
        controller: ControllerDoor,
        *,
        timeout_ms: int,
        on_refused: Callable[[], object],
        internal: Mapping[str, CreatableTopic] | None = None,
    ) -> None:
        """`internal` says how topics of the brokers' own are made; others have the defaults."""
        self._controller = controller
        self._internal = internal or {}
        self._timeout_ms = timeout_ms
        self._on_refused = on_refused
        self._under_way: dict[str, Attempt] = {}

    async def create(self, context: RequestContext, names: Sequence[str]) -> list[Attempt]:
        """Have the topics made; return the attempts that bring them, ours and those of others."""
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
                # A client at its limit still has its groups coordinated.
                is_own=all(name in self._internal for name in names),
            )
        except RefusedError:
            # The client is told that there is no such topic, and asks again.
            return frozenset(names)
        return frozenset(
            result.name
            for result in response.topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        )
