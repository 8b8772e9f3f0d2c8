"""Source text in the making, and what the two writers of it know in common about a version."""

from collections.abc import Callable
from struct import Struct as Packer
from struct import calcsize
from typing import Any

from ottla.wire.schema import SCALARS, Field, MessageSchema, StructSchema


class Source:
    """Lines of one function, and the packers it names."""

    def __init__(self, schema: MessageSchema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.is_flexible = schema.is_flexible(version)
        self.lines: list[str] = []
        self.depth = 0
        self.pending: list[tuple[str, str]] = []
        self.waiting: list[str] = []
        self.names: dict[str, Callable[..., Any]] = {}
        self._variable_count = 0

    @property
    def text(self) -> str:
        """Everything written so far."""
        return "\n".join(self.lines)

    def line(self, text: str) -> None:
        """Write one line at the present depth."""
        self.lines.append("    " * self.depth + text)

    def variable(self, prefix: str) -> str:
        """Invent a name that nothing else in this function has."""
        self._variable_count += 1
        return f"{prefix}{self._variable_count}"

    def packer(self, method: str, codes: str) -> tuple[str, int]:
        """Name a bound method of the packer of these codes, and give its size in bytes."""
        packer = Packer(f">{codes}")
        name = f"{method}_{codes.replace('?', 'Z')}"
        self.names[name] = getattr(packer, method)
        return name, packer.size

    def is_compact(self, kind: str) -> bool:
        """Say whether lengths of this kind are varints here (KIP-482)."""
        return self.is_flexible and kind != "string16"


def default_text(field: Field) -> str:
    """Write the value of a field that nobody set."""
    if field.default is None:
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        return f"{field.type}()"
    if field.type in ("bytes", "records"):
        return 'b""'
    if field.type in ("string", "string16"):
        return '""'
    return "ZERO_UUID" if field.type == "uuid" else repr(field.default)


def smallest_bytes(field: Field, schema: MessageSchema, version: int) -> int:
    """Say how many bytes one element of an array takes at least; never 0."""
    smallest = _smallest_value(field, schema, version, is_element=True)
    assert smallest > 0, f"{field.name}: a count of elements without bytes could not be bounded"
    return smallest


def _smallest_value(
    field: Field, schema: MessageSchema, version: int, *, is_element: bool = False
) -> int:
    is_flexible = schema.is_flexible(version)
    if field.is_array and not is_element:
        return 1 if is_flexible else 4
    if field.struct is not None:
        is_nullable = version in field.nullable and not is_element
        return 1 if is_nullable else _smallest_struct(field.struct, schema, version)
    if field.type in SCALARS:
        return calcsize(f">{SCALARS[field.type]}")
    if field.type == "string16" or (field.type == "string" and not is_flexible):
        return 2
    return 1 if is_flexible else 4


def _smallest_struct(struct: StructSchema, schema: MessageSchema, version: int) -> int:
    fields = (f for f in struct.fields if version in f.versions and f.tag is None)
    tag_count = 1 if schema.is_flexible(version) else 0
    return tag_count + sum(_smallest_value(field, schema, version) for field in fields)
