"""The response to a refused request, or to a refused element of a request. Pure.

The form is derived from the request and response schemas. If the root of a response has an error
code, the refusal sets it there, with a message if the version has a field for it. Otherwise each
element of the request gets the error code. The first array of the response then has one struct for
each element of the request's arrays. Fields of the same name are copied, and offsets and nodes are
set to unknown. `Api.refusal` declares the few cases in which Kafka differs from these rules.

All functions are generators that yield after each element. The caller can therefore run other tasks
while it refuses a request with many elements.
"""

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.model.values import frozen
from ottla.wire.apis import API, request_class, response_class
from ottla.wire.codec_types import Message
from ottla.wire.schema import Field, StructSchema, load

T = TypeVar("T")

CODES = ("error_code", "partition_error_code")
"""Names of the response fields that contain the error code of a struct."""

MESSAGE = "error_message"
"""Name of the response field that contains the error message beside an error code."""

UNKNOWN = frozenset(("base_offset", "committed_offset", "low_watermark", "node_id", "port"))
"""Names of the response fields that a refusal sets to -1 beside an error code."""

IDENTITIES = frozenset(
    ("index", "partition", "partition_index", "partition_id", "producer_id", "resource_type")
)
"""Names of the numeric fields that identify an element of a request, and are copied to the
response. All texts and ids identify an element, too. Other numbers are not copied."""

FURTHER_NAMES = {"name": ("topic_name", "user")}
"""Response fields whose name differs from the corresponding request field, by the name of the
request field."""


@frozen
class ElementPlan:
    """Plan for constructing one struct of an error response from an element of the refused
    request."""

    make: Callable[[], Any]
    code: str
    """Field of the response struct that receives the error code. Empty if the structs in the array
    `below` receive it."""
    message: str
    constants: tuple[tuple[str, Any], ...]
    copied: tuple[tuple[str, str], ...]
    """Pairs of fields: a field of the request element, and the field of the response struct that
    receives its value."""
    named: str
    """Field of the response struct that receives the whole request element, if the element is a
    plain value and not a struct."""
    source: str
    """Array of the request element, from whose elements the structs in `below` are constructed."""
    below: str
    """The array of the response struct that receives the structs constructed from `source`."""
    inner: "ElementPlan | None"
    repeated: tuple[tuple[str, "ElementPlan"], ...]
    """Arrays of the request element that are copied to the response beside the error code, each
    with its plan."""


@frozen
class RefusalPlan:
    """Plan for constructing the error response of one version of an API."""

    make: Callable[[], Any]
    code: str
    message: str
    constants: tuple[tuple[str, Any], ...]
    sources: tuple[tuple[str, ...], ...]
    """Paths of arrays in the request, outermost first. Each of their elements has a corresponding
    element in the response."""
    into: str
    element: ElementPlan | None
    has_elements: bool
    """True if the response to a request that is refused as a whole also contains each of its
    elements."""


def run(refusing: Generator[None, None, T]) -> T:
    """Run a generator that builds an error response to its end, without yielding to other tasks.
    Returns the response."""
    while True:
        try:
            next(refusing)
        except StopIteration as end:
            result: T = end.value
            return result


def refuse(request: Message, refusal: RefusedError, version: int) -> Message:
    """Return the response to a refused request. Every field for an error message contains the
    message of `refusal`."""
    return run(refused(request, refusal.code, version, refusal.message, explains_elements=True))


def refused(
    request: Message,
    code: ErrorCode,
    version: int,
    message: str | None = None,
    *,
    explains_elements: bool = False,
) -> Generator[None, None, Message]:
    """Return the response to a request that is refused as a whole.

    The message is at the root of the response and, with `explains_elements`, at its first elements
    as well.
    """
    key = request.API_KEY
    plan = plan_of(key, version)
    response: Any = plan.make()
    for name, value in plan.constants:
        setattr(response, name, value)
    for name in API[key].refusal.repeats:
        setattr(response, name, getattr(request, name))
    if plan.code:
        setattr(response, plan.code, code)
    if plan.message:
        setattr(response, plan.message, message)
    if plan.element is not None and plan.has_elements:
        explanations = Explanations()
        note = message if explains_elements else None
        places = getattr(response, plan.into)
        seen: set[Any] | None = set() if API[key].refusal.is_unique else None
        for path in plan.sources:
            for element in _elements(request, path):
                place = yield from _place(plan.element, element, code, note, explanations)
                if seen is not None:
                    identity = getattr(place, plan.element.copied[0][1])
                    if identity in seen:
                        continue
                    seen.add(identity)
                places.append(place)
                yield
    finished: Message = response
    return finished


def refused_element(
    key: int, version: int, element: object, code: ErrorCode
) -> Generator[None, None, Any]:
    """Return the response element for one refused element of a request."""
    plan = plan_of(key, version).element
    assert plan is not None, f"{API[key].name} has no elements in version {version}"
    return (yield from _place(plan, element, code, None, Explanations()))


def _elements(holder: Any, path: Sequence[str]) -> Iterator[Any]:
    for one in getattr(holder, path[0]) or ():
        if len(path) == 1:
            yield one
        else:
            yield from _elements(one, path[1:])


def _place(
    plan: ElementPlan,
    element: Any,
    code: ErrorCode,
    message: str | None,
    explanations: Explanations,
) -> Generator[None, None, Any]:
    place = plan.make()
    for name, value in plan.constants:
        setattr(place, name, value)
    if plan.named:
        setattr(place, plan.named, element)
    for source, name in plan.copied:
        setattr(place, name, getattr(element, source))
    if plan.code:
        setattr(place, plan.code, code)
        if plan.message:
            setattr(place, plan.message, explanations.of(message))
    for name, repeated in plan.repeated:
        copies = getattr(place, name)
        for one in getattr(element, name):
            copies.append((yield from _place(repeated, one, code, None, explanations)))
    if plan.inner is not None:
        inner = getattr(place, plan.below)
        for one in getattr(element, plan.source):
            inner.append((yield from _place(plan.inner, one, code, message, explanations)))
            yield
    return place


# --- plans, from the schemas ------------------------------------------------------------------


@cache
def plan_of(key: int, version: int) -> RefusalPlan:
    """Return the plan for constructing the error response of one version of an API."""
    declared = API[key].refusal
    asked, answer = _root(request_class(key)), _root(response_class(key))
    fields = _of_version(answer, version)
    code = _code_of(fields)
    has_message = bool(code) and declared.is_explained and any(f.name == MESSAGE for f in fields)
    plan: ElementPlan | None = None
    into = ""
    sources: tuple[tuple[str, ...], ...] = ()
    array = next((field for field in fields if field.is_array and field.struct), None)
    arrays = [field for field in _of_version(asked, version) if field.is_array]
    is_needed = bool(API[key].parts) or declared.has_both or (declared.has_elements and not code)
    if array is not None and arrays and is_needed:
        into = array.name
        first = arrays[0]
        sources = tuple((field.name,) for field in arrays)
        if declared.elements:
            path = tuple(declared.elements.split("."))
            sources = (path,)
            for name in path[1:]:
                assert first.struct is not None
                first = next(one for one in first.struct.fields if one.name == name)
        plan = _element_plan(key, first, array, version)
    return RefusalPlan(
        make=response_class(key),
        code=code,
        message=MESSAGE if has_message else "",
        constants=tuple(_constants(key, fields, code, version)),
        sources=sources,
        into=into,
        element=plan,
        has_elements=declared.has_both or not code,
    )


def _element_plan(key: int, asked: Field, answer: Field, version: int) -> ElementPlan:
    assert answer.struct is not None
    fields = _of_version(answer.struct, version)
    code = _code_of(fields)
    copied: list[tuple[str, str]] = []
    named = ""
    if asked.struct is None:
        named = next(one.name for one in fields if one.type == asked.type and one.name != MESSAGE)
    else:
        names = {one.name for one in fields}
        for one in filter(_identifies, _of_version(asked.struct, version)):
            found = [name for name in (one.name, *FURTHER_NAMES.get(one.name, ())) if name in names]
            copied += [(one.name, name) for name in found[:1]]
    inner = below = None
    source = ""
    if not code and any(one.is_array for one in fields):
        below = next(one for one in fields if one.is_array and one.struct)
        assert asked.struct is not None
        deeper = next(one for one in _of_version(asked.struct, version) if one.is_array)
        source = deeper.name
        inner = _element_plan(key, deeper, below, version)
    return ElementPlan(
        make=_struct_class(key, answer.struct),
        code=code,
        message=MESSAGE if any(one.name == MESSAGE for one in fields) else "",
        constants=tuple(_constants(key, fields, code, version)),
        copied=tuple(copied),
        named=named,
        source=source,
        below=below.name if below is not None else "",
        inner=inner,
        repeated=tuple(_repeated(key, asked, fields, version)),
    )


def _repeated(
    key: int, asked: Field, fields: list[Field], version: int
) -> Iterator[tuple[str, ElementPlan]]:
    for name in API[key].refusal.element_repeats:
        assert asked.struct is not None
        source = next((one for one in asked.struct.fields if one.name == name), None)
        answer = next((one for one in fields if one.name == name), None)
        if source is not None and answer is not None:
            yield name, _element_plan(key, source, answer, version)


def _identifies(field: Field) -> bool:
    if field.is_array:
        return False
    return field.type in ("string", "uuid") or field.name in IDENTITIES


def _constants(
    key: int, fields: list[Field], code: str, version: int
) -> Iterator[tuple[str, int | None]]:
    """Yield the name and value of each response field beside an error code that is neither copied
    from the request nor left at its default."""
    for field in fields if code else ():
        if field.name in UNKNOWN:
            yield field.name, -1
        elif field.name in API[key].refusal.nulls and version in field.nullable:
            yield field.name, None


def _root(kind: type[Message]) -> StructSchema:
    return load(kind.SCHEMA)[kind.__name__].root


def _struct_class(key: int, struct: StructSchema) -> Callable[[], Any]:
    made: Callable[[], Any] = vars(sys.modules[response_class(key).__module__])[struct.name]
    return made


def _of_version(struct: StructSchema, version: int) -> list[Field]:
    return [field for field in struct.fields if version in field.versions]


def _code_of(fields: list[Field]) -> str:
    return next((field.name for field in fields if field.name in CODES), "")
