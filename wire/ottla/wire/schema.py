"""Parser of the message schemas, which returns the messages as plain values.

One file of `schemas/` contains an API's request and response; indentation is nesting:

    request ProduceRequest key 0 versions 3-13 flexible 9+
        transactional_id string? = null
        topic_data []TopicProduceData
            name string 3-12 ignorable

A field is `name type [versions] [tag N] [ignorable] [= default]`. If the versions are omitted, they
are those of the enclosing struct or message. `?` means nullable (`?7+`: from version 7), `[]` an
array, `string16` a string whose length is never compact. `ignorable` means that a version without
the field silently drops a set value. A struct is declared where it is first used, or by `struct
Name` before the fields if several fields use it. `wire/README.md` has the details.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from functools import cache
from pkgutil import get_data
from typing import Literal, TypeAlias, cast

from ottla.model.values import frozen

SCALARS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "uuid": "16s",
}
"""Field types of fixed size, with their format codes in Python's `struct`."""

SIZED = ("string", "string16", "bytes", "records")
"""Field types that are encoded with a length prefix."""

Kind: TypeAlias = Literal["request", "response", "header", "data"]
Default: TypeAlias = int | float | bool | None

_VERSIONS = re.compile(r"(\d+)(?:(\+)|-(\d+))?")
_HEAD = re.compile(
    r"(request|response|header|data) (\w+)(?: key (\d+))? versions (\S+)(?: flexible (\S+))?"
)
_FIELD = re.compile(
    r"(?P<name>[a-z]\w*) (?P<array>\[\])?(?P<type>\w+)(?:(?P<null>\?)(?P<nullable>[\d+-]*))?"
    r"(?: (?P<versions>[\d+-]+))?(?: tag (?P<tag>\d+))?(?P<ignorable> ignorable)?"
    r"(?: = (?P<default>\S+))?"
)


@frozen
class Field:
    """One field of a message schema: its name and type, and the versions in which it exists and is
    nullable."""

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    is_ignorable: bool
    default: Default
    """Default value of the field: None for null, otherwise the declared value or a zero value of
    the type."""
    struct: "StructSchema | None"

    @property
    def is_null_by_default(self) -> bool:
        """True if the default value of the field is null. There are no nullable numbers."""
        return self.default is None


@frozen
class StructSchema:
    """Schema of one generated class: its fields, in the order in which they are encoded."""

    name: str
    fields: list[Field] = field(default_factory=list)


@frozen
class MessageSchema:
    """Schema of one message: its header line, its own fields, and all structs that it contains,
    innermost first."""

    kind: Kind
    key: int
    versions: range
    flexible_from: int | None
    root: StructSchema
    structs: dict[str, StructSchema]

    def is_flexible(self, version: int) -> bool:
        """Return whether this version of the message has compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


@cache
def load(file: str) -> dict[str, MessageSchema]:
    """Return the schemas of the messages in one schema file, by message name."""
    text = get_data("ottla.wire", f"schemas/{file}.schema")
    assert text is not None
    return {message.root.name: message for message in parse(text.decode())}


def parse(text: str) -> Iterator[MessageSchema]:
    """Yield the schemas of the messages in a schema text. An invalid line is a bug in the schemas,
    and raises AssertionError with the line."""
    lines = [(_indent(line), line.strip()) for line in text.splitlines() if line.strip()]
    starts = [at for at, (indent, _) in enumerate(lines) if indent == 0]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield _parse_message(lines[start][1], lines[start + 1 : end])


def module_name(message: str) -> str:
    """Return the module name of a message, such as `produce_request` for `ProduceRequest`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", message.replace("KRaft", "Kraft"))
    return words.lower()


def versions_in(text: str, within: range) -> range:
    """Return the versions that a text in a schema, such as `3`, `3-7` or `3+`, denotes within the
    range `within`."""
    found = _VERSIONS.fullmatch(text)
    assert found, f"{text} is no range of versions"
    lowest = int(found[1])
    highest = within[-1] if found[2] else int(found[3] or lowest)
    assert within[0] <= lowest <= highest <= within[-1], f"{text} is outside {within}"
    return range(lowest, highest + 1)


def _indent(line: str) -> int:
    depth, rest = divmod(len(line) - len(line.lstrip(" ")), 4)
    assert rest == 0, f"indentation is four spaces: {line}"
    return depth


def _parse_message(head: str, lines: list[tuple[int, str]]) -> MessageSchema:
    found = _HEAD.fullmatch(head)
    assert found, head
    kind, name, key, versions_text, flexible_text = found.groups()
    lowest, _, highest = versions_text.partition("-")
    versions = range(int(lowest), int(highest or lowest) + 1)
    flexible_from = versions_in(flexible_text, versions)[0] if flexible_text else None
    body = _Body(lines)
    root = StructSchema(name)
    body.read_fields(root, depth=1, within=versions)
    assert body.at == len(lines), f"{name}: {lines[body.at]} is indented wrongly"
    return MessageSchema(
        cast(Kind, kind), int(key or -1), versions, flexible_from, root, body.structs
    )


class _Body:
    """A cursor over the indented schema lines of one message, and the structs that were declared in
    previous lines."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self.lines = lines
        self.at = 0
        self.structs: dict[str, StructSchema] = {}

    def read_fields(self, into: StructSchema, *, depth: int, within: range) -> None:
        """Add the fields in the lines at this depth, and in the lines nested below them, to the
        struct `into`."""
        while self.at < len(self.lines) and self.lines[self.at][0] == depth:
            line = self.lines[self.at][1]
            self.at += 1
            if line.startswith("struct "):
                struct = self._declare(line.removeprefix("struct "))
                self.read_fields(struct, depth=depth + 1, within=within)
            else:
                into.fields.append(self._field(line, depth, within))

    def _declare(self, name: str) -> StructSchema:
        """Declare the struct `name` and return its schema. If another field has already referred to
        the struct, that same object gets its fields now."""
        struct = self.structs.setdefault(name, StructSchema(name))
        assert not struct.fields, f"{name} is declared twice"
        return struct

    def _field(self, line: str, depth: int, within: range) -> Field:
        found = _FIELD.fullmatch(line)
        assert found, line
        type_name = found["type"]
        versions = versions_in(found["versions"], within) if found["versions"] else within
        nullable = range(0)
        if found["null"]:
            nullable = versions_in(found["nullable"], versions) if found["nullable"] else versions
        struct = None
        if type_name not in SCALARS and type_name not in SIZED:
            has_fields = self.at < len(self.lines) and self.lines[self.at][0] > depth
            struct = (
                self._declare(type_name)
                if has_fields
                else self.structs.setdefault(type_name, StructSchema(type_name))
            )
            self.read_fields(struct, depth=depth + 1, within=versions)
        return Field(
            name=found["name"],
            type=type_name,
            is_array=found["array"] is not None,
            versions=versions,
            nullable=nullable,
            tag=None if found["tag"] is None else int(found["tag"]),
            is_ignorable=found["ignorable"] is not None,
            default=_default(type_name, found["default"], is_nullable=bool(nullable)),
            struct=struct,
        )


def _default(type_name: str, text: str | None, *, is_nullable: bool) -> Default:
    """Return the default value of a schema's field. A nullable `records` is null unless another
    default is set, as in Kafka."""
    if text == "null" or (type_name == "records" and is_nullable):
        assert is_nullable
        return None
    if type_name == "bool":
        return text == "true"
    return float(text or 0) if type_name == "float64" else int(text or 0)
