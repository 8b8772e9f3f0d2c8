"""Writer of the codec of one message as a module that mypyc compiles to native code.

`hatch_build.py` puts these modules into `wire/native/` of a compiled wheel, one for each message
whose class is compiled by pyproject.toml. A module has one function to read and one to write each
struct. Each function serves all versions, because in native code comparisons of integers are cheap,
but additional functions are not. The module supports the usual cases and leaves all others to
`codec` by raising an exception: see `native_codec`.
"""

from collections.abc import Iterator

from ottla.wire.codec_writers.codec_encoder import is_set
from ottla.wire.codec_writers.codec_source import default_text, element_cost, smallest_bytes
from ottla.wire.generator import innermost_first, python_type, schema_files
from ottla.wire.schema import SCALARS, Field, MessageSchema, StructSchema, load, module_name

WORD_BYTES = 4
"""Encoded size in bytes from which numbers in an array do not count as memory, as in
`codec_decoder`."""

METHODS = {"bool": "boolean", "string": "text", "string16": "text", "bytes": "bytes_"}
"""Methods of MessageReader and MessageWriter for field types whose names differ from the
method's."""


def native_module_name(message: str) -> str:
    """Return the name of the Python module that contains a message's native codec."""
    return f"ottla.wire.native.{module_name(message)}"


def native_source(message: str) -> str:
    """Return the source of the module with a message's native codec."""
    schema = load(schema_files()[message])[message]
    structs = list(innermost_first(schema.root))
    body = [line for struct in structs for line in _struct(schema, struct)]
    body += _codec(schema, has_records=any(_has_records(struct) for struct in structs))
    text = "\n".join(body)
    return "\n".join([*_head(schema, structs, text), text, ""])


def _head(schema: MessageSchema, structs: list[StructSchema], text: str) -> list[str]:
    name = schema.root.name
    kinds = ", ".join(sorted(struct.name for struct in structs))
    return [
        f'"""The native codec of {name}: generated, see codec_native."""',
        "from typing import Any",
        *(["from uuid import UUID"] if "UUID" in text else []),
        "from mypy_extensions import i64",
        "from ottla.wire.codec_types import Chunk, Records, ZERO_UUID",
        f"from ottla.wire.messages.{module_name(name)} import {kinds}",
        "from ottla.wire.native_codec import NativeCodec, UnusualError",
        "from ottla.wire.native_reader import MessageReader",
        "from ottla.wire.native_writer import MessageWriter",
        "",
    ]


def _codec(schema: MessageSchema, *, has_records: bool) -> list[str]:
    name, flexible_from = schema.root.name, schema.flexible_from
    compact = "False" if flexible_from is None else f"v >= {flexible_from}"
    low, high = schema.versions[0], schema.versions[-1]
    is_known = f"if not {low} <= v <= {high}: raise UnusualError('version')"
    return [
        f"class {name}Codec(NativeCodec):",
        "    def decode(",
        "        self, version: int, data: memoryview, at: int, elements_bytes_max: int",
        "    ) -> tuple[Any, int]:",
        "        v: i64 = version",
        f"        {is_known}",
        f"        r = MessageReader(data, at, elements_bytes_max, {has_records})",
        f"        return _read_{name}(r, v, {compact}), r.position()",
        "    def encode(",
        "        self, message: Any, version: int, head_bytes: int, correlation_id: int",
        "    ) -> list[Chunk]:",
        "        v: i64 = version",
        f"        {is_known}",
        "        w = MessageWriter(head_bytes)",
        f"        _write_{name}(w, message, v, {compact})",
        "        return w.chunks(correlation_id)",
        f"CODEC = {name}Codec()",
    ]


def _struct(schema: MessageSchema, struct: StructSchema) -> list[str]:
    name = struct.name
    reading = [*_ReaderBody(schema).struct(struct)]
    writing = [*_WriterBody(schema).struct(struct)]
    return [
        f"def _read_{name}(r: MessageReader, v: i64, c: bool) -> {name}:",
        *(f"    {line}" for line in reading),
        f"def _write_{name}(w: MessageWriter, m: {name}, v: i64, c: bool) -> None:",
        *(f"    {line}" for line in writing or ["pass"]),
    ]


def _has_records(struct: StructSchema) -> bool:
    return any(field.type == "records" for field in struct.fields)


class _Versions:
    """Source text of conditions on a message's version, shared by the writers of its reader and its
    writer."""

    def __init__(self, schema: MessageSchema) -> None:
        self.schema = schema

    def within(self, versions: range, around: range | None = None) -> str:
        """Return the source of the condition that the message version is in a range, or an empty
        string if that is always true."""
        every = self.schema.versions if around is None else around
        low, high = versions.start, versions.stop
        if not versions:
            return "False"
        parts = [] if low <= every.start else [f"v >= {low}"]
        parts += [] if high >= every.stop else [f"v < {high}"]
        return " and ".join(parts)

    def nullable(self, field: Field) -> str:
        """Return the source of the condition that a field is nullable in the message version being
        processed."""
        return self.within(field.nullable, field.versions) or "True"

    @property
    def is_ever_flexible(self) -> bool:
        """True if any version of the message has tagged fields."""
        return self.schema.flexible_from is not None


class _ReaderBody(_Versions):
    """Writer of the body of the native function that reads a struct."""

    def struct(self, struct: StructSchema) -> Iterator[str]:
        """Yield the source lines that read every field in order, and create the struct."""
        if _has_records(struct):
            yield "r.move_window()"
        tagged = []
        for field in struct.fields:
            if field.tag is not None:
                tagged.append(field)
                yield f"{_declared(field)} = {_default(field)}"
                continue
            yield from self.field(field)
        if self.is_ever_flexible:
            yield "if c:"
            yield from (f"    {line}" for line in self.tags(tagged))
        values = ", ".join(f"{field.name}=x_{field.name}" for field in struct.fields)
        yield f"return {struct.name}({values})"

    def field(self, field: Field) -> Iterator[str]:
        """Yield the source lines that read an untagged field, or set its default if the version
        lacks the field."""
        condition = self.within(field.versions)
        if not condition:
            yield from self.value(field, _local(field))
            return
        yield _declared(field)
        yield f"if {condition}:"
        yield from (f"    {line}" for line in self.value(field, f"x_{field.name}"))
        yield "else:"
        yield f"    x_{field.name} = {_default(field)}"

    def tags(self, tagged: list[Field]) -> Iterator[str]:
        """Yield the source lines that read the tagged fields. If a tag is unknown, they leave the
        message to the generic codec."""
        if not tagged:
            yield "r.end_tags()"
            return
        yield "for _ in range(r.uvarint()):"
        yield "    tag: i64 = r.uvarint()"
        yield "    stop: i64 = r.tag_end()"
        word = "if"
        for field in tagged:
            versions = self.within(field.versions)
            yield f"    {word} tag == {field.tag}{f' and {versions}' if versions else ''}:"
            yield from (f"        {line}" for line in self.value(field, f"x_{field.name}"))
            word = "elif"
        yield "    else:"
        yield "        raise UnusualError('tag')"
        yield "    r.end_tag(stop)"

    def value(self, field: Field, target: str) -> Iterator[str]:
        """Yield the source lines that read a field of this version into `target`."""
        if field.is_array:
            yield from self.array(field, target)
        elif field.struct is not None and field.nullable:
            yield f"n_{field.name}: i64 = r.int8()"
            if (nullable := self.nullable(field)) != "True":
                yield f"if n_{field.name} < 0 and not ({nullable}): raise UnusualError('null')"
            yield f"{target} = None if n_{field.name} < 0 else {self.element(field)}"
        elif field.nullable or field.type == "records":
            rest = f"{_compact(field)}, {self.nullable(field)}"
            yield f"{target} = r.nullable_{_method(field)}({rest})"
        else:
            yield f"{target} = {self.element(field)}"

    def element(self, field: Field) -> str:
        """Return the source of an expression that reads one non-null value."""
        if field.struct is not None:
            return f"_read_{field.struct.name}(r, v, c)"
        if field.type in SCALARS:
            return f"r.{_method(field)}()"
        return f"r.{_method(field)}({_compact(field)})"

    def array(self, field: Field, target: str) -> Iterator[str]:
        """Yield the source lines that read an array into `target`.

        The memory bound in these lines may be lower than the generic codec's bound. Above it, the
        generic codec decodes the message and decides.
        """
        versions = [v for v in field.versions if self.schema.is_flexible(v) or field.tag is None]
        smallest = min(smallest_bytes(field, self.schema, version) for version in versions)
        is_free = field.type in SCALARS and field.type != "uuid" and smallest >= WORD_BYTES
        cost = 0 if is_free else max(element_cost(field, version) for version in versions)
        elements = f"[{self.element(field)} for _ in range(n_{field.name})]"
        if not field.nullable:
            yield f"n_{field.name}: i64 = r.count(c, {smallest}, {cost})"
            yield f"{target} = {elements}"
            return
        nullable = self.nullable(field)
        yield f"n_{field.name}: i64 = r.nullable_count(c, {nullable}, {smallest}, {cost})"
        yield f"{target} = None if n_{field.name} < 0 else {elements}"


class _WriterBody(_Versions):
    """Writer of the body of the native function that writes a struct."""

    def struct(self, struct: StructSchema) -> Iterator[str]:
        """Yield the source lines that write every field in order."""
        for field in struct.fields:
            condition = self.within(field.versions)
            value = f"m.{field.name}"
            if condition and not field.is_ignorable:
                yield f"if not ({condition}) and ({is_set(field, value)}):"
                yield "    raise UnusualError('not in this version')"
            if field.tag is not None:
                continue
            lines = self.value(field, value, "w")
            if condition:
                yield f"if {condition}:"
                lines = (f"    {line}" for line in lines)
            yield from lines
        if self.is_ever_flexible:
            tagged = [field for field in struct.fields if field.tag is not None]
            yield "if c:"
            yield from (f"    {line}" for line in self.tags(sorted(tagged, key=_tag)))

    def tags(self, tagged: list[Field]) -> Iterator[str]:
        """Yield the source lines that write the tagged fields that are set, in order of their
        tags."""
        if not tagged:
            yield "w.out.append(0)"
            return
        conditions = []
        for field in tagged:
            versions = self.within(field.versions)
            found = f"({is_set(field, f'm.{field.name}')})"
            conditions.append(f"{versions} and {found}" if versions else found)
        yield "tags: i64 = 0"
        for condition in conditions:
            yield f"if {condition}: tags += 1"
        yield "w.uvarint(tags)"
        yield "if tags:"
        for field, condition in zip(tagged, conditions, strict=True):
            yield f"    if {condition}:"
            yield f"        t_{field.name} = MessageWriter(0)"
            lines = self.value(field, f"m.{field.name}", f"t_{field.name}")
            yield from (f"        {line}" for line in lines)
            yield f"        w.tag({field.tag}, t_{field.name})"

    def value(self, field: Field, value: str, writer: str) -> Iterator[str]:
        """Yield the source lines that write a field of this version."""
        if field.is_array:
            yield from self.array(field, value, writer)
        elif field.struct is not None and field.nullable:
            yield f"o_{field.name} = {value}"
            yield f"if o_{field.name} is None:"
            yield f"    if not ({self.nullable(field)}): raise UnusualError('null')"
            yield f"    {writer}.int8(-1)"
            yield "else:"
            if (nullable := self.nullable(field)) != "True":
                yield f"    if {nullable}: {writer}.int8(1)"
            else:
                yield f"    {writer}.int8(1)"
            yield f"    _write_{field.struct.name}({writer}, o_{field.name}, v, c)"
        elif field.nullable or field.type == "records":
            rest = f"{_compact(field)}, {self.nullable(field)}"
            yield f"{writer}.nullable_{_method(field)}({value}, {rest})"
        else:
            yield self.element(field, value, writer)

    def element(self, field: Field, value: str, writer: str) -> str:
        """Return the source of a statement that writes one non-null value."""
        if field.struct is not None:
            return f"_write_{field.struct.name}({writer}, {value}, v, c)"
        if field.type in SCALARS:
            return f"{writer}.{_method(field)}({value})"
        return f"{writer}.{_method(field)}({value}, {_compact(field)})"

    def array(self, field: Field, value: str, writer: str) -> Iterator[str]:
        """Yield the source lines that write the count of an array and its elements."""
        array, element = f"a_{field.name}", f"e_{field.name}"
        loop = f"for {element} in {array}: {self.element(field, element, writer)}"
        yield f"{array} = {value}"
        if not field.nullable:
            yield f"{writer}.count(len({array}), c)"
            yield loop
            return
        yield f"if {array} is None:"
        yield f"    {writer}.null(c, {self.nullable(field)})"
        yield "else:"
        yield f"    {writer}.count(len({array}), c)"
        yield f"    {loop}"


def _local(field: Field) -> str:
    return f"x_{field.name}: {python_type(field)}"


def _declared(field: Field) -> str:
    """Return the source that declares the variable of a field that may be absent. The variable of
    an absent struct is None, for which the class creates a struct."""
    return f"{_local(field)} | None" if _is_created(field) else _local(field)


def _default(field: Field) -> str:
    """Return the source of the value that the variable of an absent field has."""
    return "None" if _is_created(field) else default_text(field)


def _is_created(field: Field) -> bool:
    """Return whether the message class creates the struct that is the value of an absent field."""
    return field.struct is not None and not field.is_array and field.default is not None


def _method(field: Field) -> str:
    return METHODS.get(field.type, field.type) if field.type != "bytes" else _bytes_method(field)


def _bytes_method(field: Field) -> str:
    return "bytes" if field.nullable and not field.is_array else "bytes_"


def _compact(field: Field) -> str:
    return "False" if field.type == "string16" else "c"


def _tag(field: Field) -> int:
    assert field.tag is not None
    return field.tag
