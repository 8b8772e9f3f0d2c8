"""Authorizes Produce requests before their handler, most of them with one lookup. Pure."""

from typing import Any

from ottla.node.authorization.gates import Gate
from ottla.node.authorization.permissions import ClientPermissions
from ottla.node.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.wire.flat.flat_produce import FlatProduce

TOPICS_AT_ONE_LOOK_MAX = 100
"""Maximum number of topics in a Produce request that are authorized in one step, without yielding
to other requests."""


class ProduceGate(Gate):
    """Check of Produce requests before their handler. It authorizes the client of each request by
    the ACLs."""

    def serve(
        self,
        context: RequestContext,
        request: Any,
        permissions: ClientPermissions,
        handler: Handler,
    ) -> HandlerResult:
        """Pass a Produce request directly to the handler if the client's cached permissions include
        WRITE on all its topics. Otherwise authorize the request like those of other APIs.

        The permissions are current: the ACLs cannot change between the creation of `permissions`
        and this call.
        """
        if isinstance(request, FlatProduce):
            if (request.name or self._name_by_id(request)) in permissions.allowed.writable_topics:
                return handler(context, request)
            request = request.decoded()
        topics = request.topic_data
        if request.transactional_id is None and len(topics) <= TOPICS_AT_ONE_LOOK_MAX:
            allowed = permissions.allowed.writable_topics
            for topic in topics:
                if (topic.name or self._name_by_id(topic)) not in allowed:
                    break
            else:
                return handler(context, request)
        return super().serve(context, request, permissions, handler)
