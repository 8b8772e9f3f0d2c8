"""Source text of a generated function under construction, and the properties of a message version
that the decoder and the encoder both need."""

from collections.abc import Callable
from struct import Struct as Packer
from struct import calcsize
from typing import Any

from ottla.wire.schema import SCALARS, Field, MessageSchema, StructSchema


class FunctionSource:
    """The lines of one generated function, and the `struct` packers that it uses."""

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
        """Source text of the function generated so far."""
        return "\n".join(self.lines)

    def line(self, text: str) -> None:
        """Append one line to the function's source, at the current indentation."""
        self.lines.append("    " * self.depth + text)

    def variable(self, prefix: str) -> str:
        """Return a variable name that begins with `prefix` and is unique in this function."""
        self._variable_count += 1
        return f"{prefix}{self._variable_count}"

    def packer(self, method: str, codes: str) -> tuple[str, int]:
        """Return the name of a method (`pack` or `unpack_from`) of the Struct for these format
        codes, and the packed size in bytes."""
        packer = Packer(f">{codes}")
        name = f"{method}_{codes.replace('?', 'Z')}"
        self.names[name] = getattr(packer, method)
        return name, packer.size

    def is_compact(self, kind: str) -> bool:
        """Return whether lengths of this kind of field are varints in this message version
        (KIP-482)."""
        return self.is_flexible and kind != "string16"


def default_text(field: Field) -> str:
    """Return the source text of a field's default value."""
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
    """Return the smallest encoded size of an array element in bytes. It is never 0."""
    smallest = _smallest_value(field, schema, version, is_element=True)
    assert smallest > 0, f"{field.name}: a count of elements without bytes could not be bounded"
    return smallest


def element_cost(field: Field, version: int) -> int:
    """Return the memory in bytes that one decoded array element uses, assuming short texts.

    Numbers of four bytes and more are not counted: they use at most ten times their encoded size.
    """
    return POINTER_BYTES + _value_cost(field, version)


POINTER_BYTES = 8
OBJECT_BYTES = 32
"""Memory in bytes of a Python object with slots, including garbage-collector data, without the
slots."""
LIST_BYTES = 72
"""Memory in bytes of an empty Python list."""
COSTS = {"string": 64, "string16": 64, "bytes": 48, "records": 192, "uuid": 112}
"""Memory in bytes of one decoded value, by field type. Assumes a short text, a few bytes, a view of
records, and an id."""
SMALL_NUMBER_BYTES = 32
"""Memory in bytes of a decoded two-byte number; one-byte numbers are shared objects."""


def _value_cost(field: Field, version: int) -> int:
    if field.struct is not None:
        return _struct_cost(field.struct, version)
    if field.type in ("int16", "uint16"):
        return SMALL_NUMBER_BYTES
    return COSTS.get(field.type, 0)


def _struct_cost(struct: StructSchema, version: int) -> int:
    cost = OBJECT_BYTES + POINTER_BYTES * len(struct.fields)
    for field in struct.fields:
        is_there = version in field.versions and field.tag is None
        if field.is_array:
            cost += LIST_BYTES if is_there or field.default is not None else 0
        elif field.struct is not None:
            has_one = field.default is not None or (is_there and version not in field.nullable)
            cost += _struct_cost(field.struct, version) if has_one else 0
        elif is_there and field.type not in ("int16", "uint16"):
            cost += _value_cost(field, version)
    return cost


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
