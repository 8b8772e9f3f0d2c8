"""A gate for each row of `wire/api_permissions`: what a request needs, checked before its handler.

Pure.  A request is refused as a whole, or loses the parts that are not allowed; their places in the
answer are put in when the handler's answer is there.  A request that names much is looked at in
steps.  What only the handler can see (parts of the answer, sessions, options) it asks of
`context.permissions` itself.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from ottla.broker.authorization.conditions import CONDITIONS
from ottla.broker.authorization.elements import ELEMENTS, Elements
from ottla.broker.authorization.permissions import ClientPermissions
from ottla.broker.authorization.refusals import refused
from ottla.broker.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.broker.network.steps import Answer, StepPace, Steps, begun
from ottla.model.errors import ErrorCode
from ottla.wire.api_permissions import AnyOf, ApiPermission, Decider, Need, Scope, When
from ottla.wire.apis import response_class

TopicName = Callable[[UUID], str | None]
"""Returns the name of a topic by its id; None for an id that no topic has."""

NoteRefusal = Callable[[int, ErrorCode], None]
"""Counts a refused part of a request: API key and code."""


class Gate:
    """What one row of the table asks of a request."""

    def __init__(self, row: ApiPermission, name_of: TopicName, note: NoteRefusal) -> None:
        self._key = row.key
        self._name_of = name_of
        self._note = note
        self._elements = ELEMENTS.get(row.key)
        self._whole: list[tuple[Need, ...]] = []
        """Of each, one is enough."""
        self._each: list[Need] = []
        self._instead: list[Need] = []
        """Of these one is enough for all parts."""
        for one in row.needs if row.decider is Decider.BROKER else ():
            needs = one.needs if isinstance(one, AnyOf) else (one,)
            if all(need.scope is Scope.REQUEST for need in needs):
                self._whole.append(needs)
                continue
            each = [need for need in needs if self._is_of_elements(need)]
            self._each += each
            if each:
                self._instead += [need for need in needs if need.scope is Scope.REQUEST]
        self._only: Need | None = None
        """What each part needs, where that is one thing and always needed."""
        if len(self._each) == 1 and self._each[0].when is When.ALWAYS:
            self._only = self._each[0]
        self.is_open = not self._whole and not self._each
        """Whether nothing is asked before the handler."""

    def _is_of_elements(self, need: Need) -> bool:
        """Return whether a need is that of each part; a part's own parts are the handler's."""
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
        """Refuse the request, or have what is allowed of it served."""
        if self._is_allowed_at_once(context, request, permissions):
            return handler(context, request)
        return begun(self._serve(context, request, permissions, handler))

    def _is_allowed_at_once(
        self, context: RequestContext, request: Any, permissions: ClientPermissions
    ) -> bool:
        """Return whether a request of one resource or two is allowed, as most are: without steps.

        What was decided here is not decided, or logged, once more in the steps.
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
        if self._instead or context.header.api_version < elements.lists_from:
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
        if context.api_version < elements.lists_from:
            name = getattr(request, elements.single)
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
        """Have the parts served that are allowed, and put the others into the answer."""
        pace = StepPace()
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
                places.append((yield from elements.place_of(part, need.code, pace)))
            if pace.is_due():
                yield
        if not places:
            return handler(context, request)
        setattr(request, elements.field, allowed)
        if allowed or elements.is_served_empty:
            context.slot.amend = partial(_put_into, elements.into, places)
            return handler(context, request)
        response = response_class(self._key)()
        setattr(response, elements.into, places)
        return response

    def _name_by_id(self, part: Any) -> str | None:
        """Return the name of a topic that is named by its id; None where there is none to hide."""
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
        """Return what a part lacks, None if it is allowed."""
        for need in self._each:
            is_needed = need.when is When.ALWAYS or CONDITIONS[need.when](context, request, part)
            if is_needed and not permissions.has(need, name):
                return need
        return None

    def _note_refused_part(self, context: RequestContext, code: ErrorCode) -> None:
        self._note(self._key, code)
        trace = context.slot.trace
        if trace is not None and not trace.error_code:
            trace.error_code = code

    def _refuse(
        self, context: RequestContext, request: Any, permissions: ClientPermissions, need: Need
    ) -> Answer:
        reason = f"{permissions.principal} is not allowed {spoken(need)}"
        response = yield from refused(request, need.code, context.api_version, reason)
        if not getattr(response, "error_code", 0):
            self._note_refused_part(context, need.code)
        if getattr(request, "acks", None) == 0:
            # There is no answer to put the error into: the producer sees it as a hang-up.
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
    """Return what the whole request lacks, None if it is allowed."""
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
    """Return an operation on a resource as a person reads it, such as `alter configs on topic`."""
    words = f"{need.operation.name} on {need.resource.name}"
    return words.replace("_", " ").lower()


def _put_into(field: str, places: list[Any], response: Any) -> None:
    """Put the places of refused parts into the handler's answer, unless that refuses the whole."""
    if getattr(response, "error_code", 0):
        return
    getattr(response, field).extend(places)
