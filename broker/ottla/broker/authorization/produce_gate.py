"""The gate of Produce: what most requests of producers need is seen at one look.  Pure."""

from typing import Any

from ottla.broker.authorization.gates import Gate
from ottla.broker.authorization.permissions import ClientPermissions
from ottla.broker.network.dispatch import Handler, HandlerResult, RequestContext

TOPICS_AT_ONE_LOOK_MAX = 100
"""Topics of a request that are looked at in one step."""


class ProduceGate(Gate):
    """What the row of Produce asks of a request."""

    def serve(
        self,
        context: RequestContext,
        request: Any,
        permissions: ClientPermissions,
        handler: Handler,
    ) -> HandlerResult:
        """Have a request served at once whose topics were all allowed before; else as any other.

        The permissions are those of now: no state of the entries lies between them and this call.
        """
        topics = request.topic_data
        if request.transactional_id is None and len(topics) <= TOPICS_AT_ONE_LOOK_MAX:
            allowed = permissions.allowed.writable_topics
            for topic in topics:
                if (topic.name or self._name_by_id(topic)) not in allowed:
                    break
            else:
                return handler(context, request)
        return super().serve(context, request, permissions, handler)
