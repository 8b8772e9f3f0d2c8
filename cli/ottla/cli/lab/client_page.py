"""The API reference of docs/client.md, from the docstrings of `ottla.client`.

Fields are found in the source: a docstring stands below each, or its setting's sentence in it.
"""

import ast
import enum
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import ottla.client
from ottla.client import aio
from ottla.model.settings.declare import definitions

REFERENCE_BEGIN = "<!-- reference: begin; written by `make docs` from the docstrings -->\n"
REFERENCE_END = "<!-- reference: end -->\n"

SECTIONS = (
    ("Clients", ("open_producer", "open_consumer", "open_admin", "Producer", "Consumer", "Admin")),
    ("Settings", ("ProducerConfig", "ConsumerConfig", "ClientSecurity", "BearerToken")),
    (
        "Serializers",
        (
            "SerializingProducer",
            "DeserializingConsumer",
            "DeserializedRecord",
            "to_json",
            "from_json",
            "to_text",
            "from_text",
        ),
    ),
    (
        "Errors",
        (
            "RefusedError",
            "ErrorCode",
            "NotDeliveredError",
            "ConnectionLostError",
            "DeserializationError",
            "ProducerFencedError",
            "TransactionAbortedError",
            "TransactionOutcomeUnknownError",
        ),
    ),
)
"""What stands first, by section; all other names follow as results and arguments."""


@dataclass(frozen=True, slots=True)
class DocumentedField:
    """A public field or property of a class."""

    name: str
    text: str


def with_reference(page: str) -> str:
    """Return the text of docs/client.md with the reference between its two marks."""
    before, _, rest = page.partition(REFERENCE_BEGIN)
    _, _, after = rest.partition(REFERENCE_END)
    return before + REFERENCE_BEGIN + reference() + REFERENCE_END + after


def reference() -> str:
    """Return the reference: every public name of the client, and those of asyncio."""
    named = {name for _, names in SECTIONS for name in names}
    others = tuple(name for name in ottla.client.__all__ if name not in named)
    text = ""
    for title, names in (*SECTIONS, ("Results and arguments", others)):
        text += f"\n## {title}\n"
        text += "".join(_entry(name, getattr(ottla.client, name)) for name in names)
    text += "\n## asyncio: `ottla.client.aio`\n"
    return text + "".join(_entry(name, getattr(aio, name)) for name in aio.__all__) + "\n"


def undocumented() -> list[str]:
    """Return the public classes, methods and fields without a docstring."""
    found = []
    for module in (ottla.client, aio):
        for name in module.__all__:
            thing = getattr(module, name)
            if not _doc(thing):
                found.append(name)
            if inspect.isclass(thing):
                found += [f"{name}.{one.name}" for one in fields_of(thing) if not one.text]
                found += [f"{name}.{one}" for one, call in methods_of(thing) if not _doc(call)]
    return found


def fields_of(kind: type) -> list[DocumentedField]:
    """Return the public fields and properties of a class, with those of its bases."""
    found: dict[str, DocumentedField] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("ottla."):
            continue
        declared = definitions(base) if _is_data(base) else {}
        settings = {one.field_name: one for one in declared.values()}
        for name, text in _fields_in_source(base):
            setting = settings.get(name)
            if setting is not None:
                default = "none" if setting.default is None else f"`{setting.default or '(empty)'}`"
                text = f"`{setting.key}`, default {default}. {setting.documentation}"
            found[name] = DocumentedField(name, text)
    return [one for name, one in found.items() if not name.startswith("_")]


def methods_of(kind: type) -> list[tuple[str, FunctionType]]:
    """Return the public methods of a class, with those of its bases of ours."""
    found: dict[str, FunctionType] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("ottla."):
            for name, member in vars(base).items():
                if isinstance(member, FunctionType) and not name.startswith("_"):
                    found[name] = member
    return list(found.items())


def _is_data(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__")


def _fields_in_source(kind: type) -> Iterator[tuple[str, str]]:
    if issubclass(kind, enum.Enum):
        return
    tree = ast.parse(inspect.getsource(kind).strip())
    (definition,) = tree.body
    assert isinstance(definition, ast.ClassDef)
    bodies = [definition.body]
    bodies += [
        one.body
        for one in definition.body
        if isinstance(one, ast.FunctionDef) and one.name == "__init__"
    ]
    for body in bodies:
        for statement, below in zip(body, [*body[1:], None], strict=True):
            name = _target(statement, is_field=body is definition.body)
            if name:
                yield name, inspect.cleandoc(_text_of(below))
    for one in definition.body:
        if isinstance(one, ast.FunctionDef) and any(
            isinstance(mark, ast.Name) and mark.id == "property" for mark in one.decorator_list
        ):
            yield one.name, ast.get_docstring(one) or ""


def _target(statement: ast.stmt, *, is_field: bool) -> str:
    """Return the name that a statement of a class's body, or of its constructor, declares."""
    target: ast.expr | None = None
    if isinstance(statement, ast.AnnAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign):
        target = statement.targets[0]
    if is_field:
        is_declared = isinstance(statement, ast.AnnAssign) and isinstance(target, ast.Name)
        return target.id if is_declared and isinstance(target, ast.Name) else ""
    return target.attr if isinstance(target, ast.Attribute) else ""


def _text_of(statement: ast.stmt | None) -> str:
    """Return the docstring that a statement is; empty for any other."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return ""


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _signature(name: str, call: Any) -> str:
    real = inspect.unwrap(call)
    is_async = inspect.iscoroutinefunction(real) or inspect.iscoroutinefunction(call)
    parameters = inspect.signature(real).parameters
    shown, has_star = [], False
    for one in parameters.values():
        if one.name in ("self", "client"):
            continue
        if one.kind is one.KEYWORD_ONLY and not has_star:
            shown.append("*")
            has_star = True
        has_star |= one.kind is one.VAR_POSITIONAL
        stars = "*" if one.kind is one.VAR_POSITIONAL else ""
        default = "" if one.default is one.empty else f"={_default(one.default)}"
        shown.append(f"{stars}{one.name}{default}")
    if hasattr(real, "__wrapped__") or inspect.isasyncgenfunction(real):
        return f"async with {name}({', '.join(shown)})"
    return f"{'await ' if is_async else ''}{name}({', '.join(shown)})"


def _default(value: object) -> str:
    return getattr(value, "__name__", None) or repr(value)


def _entry(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"\n### `{_signature(name, thing)}`\n\n{_doc(thing)}\n"
    text = f"\n### `{name}`\n\n{_doc(thing)}\n"
    if issubclass(thing, enum.Enum):
        members = ", ".join(f"`{one.name}`" for one in thing)
        return f"{text}\n{members}\n"
    fields = fields_of(thing)
    if fields:
        text += "\n" + "".join(f"- `{one.name}`: {' '.join(one.text.split())}\n" for one in fields)
    for method, call in methods_of(thing):
        text += f"\n#### `{name}`: `{_signature(method, call)}`\n\n{_doc(call)}\n"
    return text
