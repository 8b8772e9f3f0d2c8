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
from ottla.broker.authorization.permissions import RequestPermissions
from ottla.broker.authorization.refusals import refused
from ottla.broker.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.broker.network.steps import Answer, StepPace, Steps, begun
from ottla.model.errors import ErrorCode
from ottla.wire.api_permissions import AnyOf, ApiPermission, Decider, Need, Scope
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
        permissions: RequestPermissions,
        handler: Handler,
    ) -> HandlerResult:
        """Refuse the request, or have what is allowed of it served."""
        return begun(self._serve(context, request, permissions, handler))

    def _serve(
        self,
        context: RequestContext,
        request: Any,
        permissions: RequestPermissions,
        handler: Handler,
    ) -> Answer:
        pace = StepPace()
        for needs in self._whole:
            code = yield from _refusal(context, request, permissions, needs, pace)
            if code is not ErrorCode.NONE:
                return (yield from self._refuse(context, request, code))
        elements = self._elements
        if elements is None or not self._each:
            return handler(context, request)
        if context.api_version < elements.lists_from:
            name = getattr(request, elements.single)
            code = self._code_of(context, request, permissions, request, name)
            if code is not ErrorCode.NONE:
                return (yield from self._refuse(context, request, code))
            return handler(context, request)
        if any(permissions.has(need, "", is_logged=False) for need in self._instead):
            return handler(context, request)
        return (yield from self._serve_allowed(context, request, permissions, handler, elements))

    def _serve_allowed(
        self,
        context: RequestContext,
        request: Any,
        permissions: RequestPermissions,
        handler: Handler,
        elements: Elements,
    ) -> Answer:
        """Have the parts served that are allowed, and put the others into the answer."""
        pace = StepPace()
        allowed: list[Any] = []
        places: list[Any] = []
        for part in getattr(request, elements.field):
            name = elements.name_of(part) or self._name_by_id(part)
            code = ErrorCode.NONE
            if name is not None:
                code = self._code_of(context, request, permissions, part, name)
            if code is ErrorCode.NONE:
                allowed.append(part)
            else:
                self._note(self._key, code)
                places.append((yield from elements.place_of(part, code, pace)))
            if pace.is_due():
                yield
        if not places:
            return handler(context, request)
        setattr(request, elements.field, allowed)
        if allowed or elements.is_served_empty:
            permissions.has_refused = True
            context.slot.amend = partial(_put_into, elements.into, places)
            return handler(context, request)
        response = response_class(self._key)()
        setattr(response, elements.into, places)
        return response

    def _name_by_id(self, part: Any) -> str | None:
        """Return the name of a topic that is named by its id; None where there is none to hide."""
        topic_id = getattr(part, "topic_id", None)
        return "" if topic_id is None else self._name_of(topic_id)

    def _code_of(
        self,
        context: RequestContext,
        request: Any,
        permissions: RequestPermissions,
        part: Any,
        name: str,
    ) -> ErrorCode:
        """Return why a part is refused, NONE if it is not."""
        for need in self._each:
            if CONDITIONS[need.when](context, request, part) and not permissions.has(need, name):
                return need.code
        return ErrorCode.NONE

    def _refuse(self, context: RequestContext, request: Any, code: ErrorCode) -> Answer:
        response = yield from refused(request, code, context.api_version)
        if not getattr(response, "error_code", 0):
            self._note(self._key, code)
        if getattr(request, "acks", None) == 0:
            # There is no answer to put the error into: the producer sees it as a hang-up.
            context.close_connection()
            return None
        return response


def _refusal(
    context: RequestContext,
    request: Any,
    permissions: RequestPermissions,
    needs: tuple[Need, ...],
    pace: StepPace,
) -> Steps[ErrorCode]:
    """Return why the whole request is refused, NONE if it is not."""
    applying = [need for need in needs if CONDITIONS[need.when](context, request, None)]
    if not applying:
        return ErrorCode.NONE
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
            return ErrorCode.NONE
    return applying[-1].code


def _put_into(field: str, places: list[Any], response: Any) -> None:
    """Put the places of refused parts into the handler's answer, unless that refuses the whole."""
    if getattr(response, "error_code", 0):
        return
    getattr(response, field).extend(places)
