"""Topics that are made because a client asked for them (`auto.create.topics.enable`).

Each name is on its way to the controller once at a time: a thousand clients that ask for the same
new topic cost one request, and everybody waits for the image to show it.
"""

from collections.abc import Sequence

from ottla.broker.dispatch import RequestContext
from ottla.broker.forwarding import ControllerDoor, forward_as
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

CREATE_TOPICS_VERSION = 7
CLUSTER_DEFAULT = -1
"""As a number of partitions or replicas: what the cluster's settings say."""


class AutoCreate:
    """Asks the controller for topics."""

    def __init__(self, controller: ControllerDoor, *, timeout_ms: int) -> None:
        self._controller = controller
        self._timeout_ms = timeout_ms
        self._under_way: set[str] = set()

    async def create(self, context: RequestContext, names: Sequence[str]) -> frozenset[str]:
        """Have the topics made; return those that will not be there."""
        mine = sorted(set(names) - self._under_way)
        if not mine:
            return frozenset()
        self._under_way.update(mine)
        try:
            response = await forward_as(
                CreateTopicsResponse,
                self._controller,
                context,
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(
                            name=name,
                            num_partitions=CLUSTER_DEFAULT,
                            replication_factor=CLUSTER_DEFAULT,
                        )
                        for name in mine
                    ],
                    timeout_ms=self._timeout_ms,
                ),
                version=CREATE_TOPICS_VERSION,
                timeout_ms=self._timeout_ms,
            )
        except RefusedError:
            # The client is told that there is no such topic, and asks again.
            return frozenset(mine)
        finally:
            self._under_way.difference_update(mine)
        return frozenset(
            result.name
            for result in response.topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        )
