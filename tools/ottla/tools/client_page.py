"""Generator of docs/reference/client.md from the docstrings of `ottla.client`.

A field is described by the docstring below it in the source, or by the description of its setting.
"""

import ast
import enum
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import ottla.client
from ottla.client import aio
from ottla.model.settings.declare import definitions
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.tools.markdown import NOTICE

SECTIONS = (
    ("Clients", ("open_producer", "open_consumer", "open_admin", "Producer", "Consumer", "Admin")),
    ("Queues", ("open_share_consumer", "ShareConsumer", "ShareRecord", "ShareBatch")),
    (
        "Settings",
        (
            "ProducerConfig",
            "ConsumerConfig",
            "ShareConsumerConfig",
            "AdminConfig",
            "ClientSecurity",
            "BearerToken",
        ),
    ),
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
            "ConfigError",
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
"""Names that the page shows first, by section. All other public names follow in the sections for
results and arguments."""


@dataclass(frozen=True, slots=True)
class DocumentedField:
    """A public field or property of a class, with its docstring."""

    name: str
    text: str


def reference() -> str:
    """Return the text of docs/reference/client.md: every public name of the client, and of its
    asyncio form."""
    named = {name for _, names in SECTIONS for name in names}
    others = tuple(name for name in ottla.client.__all__ if name not in named)
    text = (
        f"{NOTICE}# Reference of `ottla.client`\n\n"
        "Programs to start from are on [its page](../client.md).\n\n"
    )
    body = ""
    sections: list[tuple[str, tuple[str, ...], ModuleType]]
    sections = [(title, names, ottla.client) for title, names in SECTIONS]
    sections.append(("Results and arguments", others, ottla.client))
    sections.append(("asyncio: `ottla.client.aio`", tuple(aio.__all__), aio))
    for title, names, module in sections:
        body += f"\n## {title}\n"
        entries = [(name, _entry(name, getattr(module, name))) for name in names]
        body += "".join(entry for _, entry in entries)
        links = (f"[`{name}`](#{_anchor(_heading(entry))})" for name, entry in entries)
        text += f"- [{title}](#{_anchor(title)}): {', '.join(links)}\n"
    return text + body


def _heading(entry: str) -> str:
    """Return the text of the first heading of an entry."""
    return entry.lstrip().splitlines()[0].lstrip("# ")


def _anchor(heading: str) -> str:
    """Return the anchor that Markdown viewers assign to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def undocumented() -> list[str]:
    """Return the names of public classes, methods and fields of the client that have no
    docstring."""
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
    """Return the public fields and properties of a class, including those of its base classes."""
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
    """Return the public methods of a class, including those of its base classes in Ottla."""
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
    """Return the name that a statement declares in the body of a class or of its constructor."""
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
    """Return the text of a docstring statement, or "" if the statement is not a docstring."""
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
    fields, methods = fields_of(thing), methods_of(thing)
    if issubclass(thing, ClientSecurity) and thing is not ClientSecurity:
        # Described once: each kind of configuration has the same thirty settings.
        text += "\nIt also has the settings and methods of [`ClientSecurity`](#clientsecurity) "
        text += "for TLS and logins.\n"
        shared = {one.name for one in fields_of(ClientSecurity)}
        shared |= {one for one, _ in methods_of(ClientSecurity)}
        fields = [one for one in fields if one.name not in shared]
        methods = [(one, call) for one, call in methods if one not in shared]
    if fields:
        text += "\n" + "".join(f"- `{one.name}`: {' '.join(one.text.split())}\n" for one in fields)
    for method, call in methods:
        text += f"\n#### `{name}`: `{_signature(method, call)}`\n\n{_doc(call)}\n"
    return text
