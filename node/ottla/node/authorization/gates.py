"""Authorizes the requests of each API before their handler, by the ACL operations that `wire/apis`
declares for the API.

Pure. A request is refused as a whole, or the elements that the client may not access are removed.
Errors for these elements are added to the handler's response. A request with many elements is
authorized in steps. For data that is not part of the request, the handler itself checks
`context.permissions`: parts of the response, sessions, options.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.node.authorization.conditions import CONDITIONS
from ottla.node.authorization.permissions import ClientPermissions
from ottla.node.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, Steps, begun, paced
from ottla.wire.api import AnyOf, Api, Decider, Need, Parts, Scope, When
from ottla.wire.apis import response_class
from ottla.wire.flat.flat_commit import FlatCommit
from ottla.wire.refusals import plan_of, refused, refused_element

TopicName = Callable[[UUID], str | None]
"""Callable that returns the name of a topic by its id, or None if no topic has the id."""

NoteRefusal = Callable[[int, ErrorCode], None]
"""Callable that counts an element of a request that the authorizer refused, by API key and error
code."""


class Elements:
    """Elements in the requests of one API, such as topics. Each element is authorized
    separately."""

    __slots__ = ("field", "name", "parts")

    def __init__(self, named_by: str, parts: Parts) -> None:
        self.field, _, self.name = named_by.partition(".")
        """Name of the request's field that contains the list, and name of the element's field that
        contains the resource's name. The second name is empty if the element is the name itself."""
        self.parts = parts

    def name_of(self, element: Any) -> str:
        """Return the name of the resource that an element of a request names, or an empty text if
        the element contains an id instead."""
        name: str = getattr(element, self.name) if self.name else element
        return name


def elements_of(row: Api) -> Elements | None:
    """Return the elements of an API's requests that are authorized one by one. Returns None if the
    requests have no such elements, or if the API's handler authorizes them."""
    named = (one.named_by for one in row.single_needs if one.scope is Scope.EACH and one.named_by)
    return None if row.parts is None else Elements(next(named), row.parts)


class Gate:
    """Check of one API's requests before their handler. It authorizes the client of each request by
    the ACLs."""

    def __init__(self, row: Api, name_of: TopicName, note: NoteRefusal) -> None:
        self._key = row.key
        self._name_of = name_of
        self._note = note
        self._elements = elements_of(row)
        self._whole: list[tuple[Need, ...]] = []
        """ACL operations that a request as a whole needs, as tuples of alternatives. One operation
        of each tuple must be allowed."""
        self._each: list[Need] = []
        self._instead: list[Need] = []
        """ACL operations on the whole request that replace the operations on its elements. If one
        of them is allowed, all elements are allowed."""
        for one in row.needs if row.decider is not Decider.CONTROLLER else ():
            needs = one.needs if isinstance(one, AnyOf) else (one,)
            if all(need.scope is Scope.REQUEST for need in needs):
                self._whole.append(needs)
                continue
            each = [need for need in needs if self._is_of_elements(need)]
            self._each += each
            if each:
                self._instead += [need for need in needs if need.scope is Scope.REQUEST]
        self._only: Need | None = None
        """ACL operation that a request of this API always needs for each resource in it. None if
        there are several such operations, or if a need depends on the request."""
        if len(self._each) == 1 and self._each[0].when is When.ALWAYS:
            self._only = self._each[0]
        self.is_open = not self._whole and not self._each
        """True if requests of this API are passed to the handler without a check of ACLs."""

    def _is_of_elements(self, need: Need) -> bool:
        """Return whether a needed ACL operation applies to each element of the request. Operations
        on parts of an element are checked by the handler."""
        field, _, rest = need.named_by.partition(".")
        elements = self._elements
        return elements is not None and field == elements.field and "." not in rest

    def serve(
        self,
        context: RequestContext,
        request: Any,
        permissions: ClientPermissions,
        handler: Handler,
    ) -> HandlerResult:
        """Authorize a request. The request is refused as a whole, or the handler is called with the
        elements that the client may access."""
        if isinstance(request, FlatCommit):
            request = request.decoded()
        if self._is_allowed_at_once(context, request, permissions):
            return handler(context, request)
        return begun(self._serve(context, request, permissions, handler))

    def _is_allowed_at_once(
        self, context: RequestContext, request: Any, permissions: ClientPermissions
    ) -> bool:
        """Check a request for one or two resources, as most requests are, without dividing the
        check into steps. Returns True if the request is allowed.

        The decisions are cached, so that a later check in steps neither repeats nor logs them.
        """
        for needs in self._whole:
            need = needs[0]
            if len(needs) > 1:
                return False
            if need.when is not When.ALWAYS and not CONDITIONS[need.when](context, request, None):
                continue
            name = getattr(request, need.named_by) if need.named_by else ""
            if not (isinstance(name, str) and permissions.has(need, name)):
                return False
        elements = self._elements
        if elements is None or not self._each:
            return True
        if self._instead or context.header.api_version < elements.parts.lists_from:
            return False
        parts = getattr(request, elements.field)
        if len(parts) != 1:
            return False
        name = elements.name_of(parts[0]) or self._name_by_id(parts[0])
        if name is None:
            return True
        if self._only is not None:
            return permissions.allows(self._only.operation, self._only.resource, name)
        return self._refusing(context, request, permissions, parts[0], name) is None

    def _serve(
        self,
        context: RequestContext,
        request: Any,
        permissions: ClientPermissions,
        handler: Handler,
    ) -> Answer:
        pace = StepPace()
        for needs in self._whole:
            need = yield from _refusal(context, request, permissions, needs, pace)
            if need is not None:
                return (yield from self._refuse(context, request, permissions, need))
        elements = self._elements
        if elements is None or not self._each:
            return handler(context, request)
        if context.api_version < elements.parts.lists_from:
            name = getattr(request, elements.parts.single)
            need = self._refusing(context, request, permissions, request, name)
            if need is not None:
                return (yield from self._refuse(context, request, permissions, need))
            return handler(context, request)
        if any(permissions.has(need, "", is_logged=False) for need in self._instead):
            return handler(context, request)
        return (yield from self._serve_allowed(context, request, permissions, handler, elements))

    def _serve_allowed(
        self,
        context: RequestContext,
        request: Any,
        permissions: ClientPermissions,
        handler: Handler,
        elements: Elements,
    ) -> Answer:
        """Pass the elements of a request that the client may access to the handler, and answer all
        other elements with errors."""
        pace, version = StepPace(), context.api_version
        allowed: list[Any] = []
        places: list[Any] = []
        for part in getattr(request, elements.field):
            name = elements.name_of(part) or self._name_by_id(part)
            need = None
            if name is not None:
                need = self._refusing(context, request, permissions, part, name)
            if need is None:
                allowed.append(part)
            else:
                self._note_refused_part(context, need.code)
                refusing = refused_element(self._key, version, part, need.code)
                places.append((yield from paced(refusing, pace)))
            if pace.is_due():
                yield
        if not places:
            return handler(context, request)
        setattr(request, elements.field, allowed)
        into = plan_of(self._key, version).into
        if allowed or elements.parts.is_served_empty:
            context.amend = partial(_put_into, into, places)
            return handler(context, request)
        response = response_class(self._key)()
        setattr(response, into, places)
        return response

    def _name_by_id(self, part: Any) -> str | None:
        """Return the name of a topic that an element of the request names by id, or None if no
        topic has the id."""
        topic_id = getattr(part, "topic_id", None)
        return "" if topic_id is None else self._name_of(topic_id)

    def _refusing(
        self,
        context: RequestContext,
        request: Any,
        permissions: ClientPermissions,
        part: Any,
        name: str,
    ) -> Need | None:
        """Return the first ACL operation that an element of the request needs and that the client
        is denied. Returns None if the element is allowed."""
        for need in self._each:
            is_needed = need.when is When.ALWAYS or CONDITIONS[need.when](context, request, part)
            if is_needed and not permissions.has(need, name):
                return need
        return None

    def _note_refused_part(self, context: RequestContext, code: ErrorCode) -> None:
        self._note(self._key, code)
        trace = context.trace
        if trace is not None and not trace.error_code:
            trace.error_code = code

    def _refuse(
        self, context: RequestContext, request: Any, permissions: ClientPermissions, need: Need
    ) -> Answer:
        reason = f"{permissions.principal} is not allowed {spoken(need)}"
        refusing = refused(request, need.code, context.api_version, reason)
        response = yield from paced(refusing, StepPace())
        if not getattr(response, "error_code", 0):
            self._note_refused_part(context, need.code)
        if getattr(request, "acks", None) == 0:
            # acks=0 has no response for the error; the producer sees the connection close.
            context.close_connection()
            return None
        return response


def _refusal(
    context: RequestContext,
    request: Any,
    permissions: ClientPermissions,
    needs: tuple[Need, ...],
    pace: StepPace,
) -> Steps[Need | None]:
    """Return an ACL operation that the whole request needs and that the client is denied, or None
    if the request is allowed. `pace` limits the duration of each step of the work."""
    applying = [need for need in needs if CONDITIONS[need.when](context, request, None)]
    if not applying:
        return None
    for need in applying:
        is_last = need is applying[-1]
        named: Any = getattr(request, need.named_by) if need.named_by else ""
        names = [named] if isinstance(named, str) else named or ()
        is_allowed = True
        for name in names:
            is_allowed = is_allowed and permissions.has(need, name, is_logged=is_last)
            if pace.is_due():
                yield
        if is_allowed:
            return None
    return applying[-1]


def spoken(need: Need) -> str:
    """Return a needed ACL operation and its resource type as text for a log line, such as `alter
    configs on topic`."""
    words = f"{need.operation.name} on {need.resource.name}"
    return words.replace("_", " ").lower()


def _put_into(field: str, places: list[Any], response: Any) -> None:
    """Add the errors of the refused elements `places` to the field `field` of the handler's
    response. Does nothing if the response is an error for the whole request."""
    if getattr(response, "error_code", 0):
        return
    getattr(response, field).extend(places)
