"""Generator of the message classes: run `python -m ottla.wire.generator` after a change of a
schema.

A message that is served, sent or stored has a module in `messages/`, committed so that people and
type checkers can read it. A test verifies that each module equals this generator's output. Name a
message as an argument to give it a module. All other messages are created in memory when a test or
a decoder requests them (`in_memory`). This module does not write the functions that decode and
encode these classes: `codec` compiles them at first use.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from ottla.wire.schema import Field, MessageSchema, StructSchema, load, module_name

LINE_LENGTH = 100

_PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "UUID",
    "string": "str",
    "string16": "str",
    "bytes": "bytes",
    "records": "Records",
}

_EMPTY_VALUES = {"uuid": "ZERO_UUID", "string": '""', "string16": '""', "bytes": 'b""'}


@cache
def schema_files() -> dict[str, str]:
    """Return the name of the schema file of every message, by the message's name in Kafka."""
    names = (entry.name for entry in (files("ottla.wire") / "schemas").iterdir())
    stems = sorted(name.removesuffix(".schema") for name in names if name.endswith(".schema"))
    return {message: stem for stem in stems for message in load(stem)}


def generate(message: str) -> str:
    """Return the source text of the module for the message with this name in Kafka."""
    file = schema_files()[message]
    return module_text(file, load(file)[message])


@cache
def in_memory(message: str) -> ModuleType:
    """Create and return the module of a message that has no file in `messages/`.

    Raises KeyError if no schema declares the message.
    """
    name = f"ottla.wire.messages_in_memory.{module_name(message)}"
    module = ModuleType(name)
    exec(compile(generate(message), f"<{name}>", "exec"), vars(module))
    sys.modules[name] = module  # the codec looks up structs by module
    return module


def module_text(file: str, schema: MessageSchema) -> str:
    """Return the source text of the module for a message with this schema, declared in `file`."""
    ordered = list(innermost_first(schema.root))
    classes = [_class_text(struct, None) for struct in ordered[:-1]]
    classes.append(_class_text(schema.root, _constants(file, schema)))
    body = "\n\n\n".join(classes)
    title = f'"""{schema.root.name}.\n\nGenerated from schemas/{file}.schema; never edited.\n"""'
    if any(_is_out_of_order(struct) for struct in ordered):
        title += "\n\n# ruff: noqa: RUF023  # slots stand in the order of the wire"
    return f"{title}\n\n{_imports(body)}\n\n{body}\n"


def _is_out_of_order(struct: StructSchema) -> bool:
    """Return whether ruff would reorder the slots of a generated struct class. Ruff sorts them
    naturally, with numbers by value."""
    names = [re.split(r"(\d+)", field.name) for field in struct.fields]
    keys = [[int(part) if part.isdigit() else part for part in name] for name in names]
    return keys != sorted(keys)


def innermost_first(struct: StructSchema) -> Iterator[StructSchema]:
    """Yield the schemas of a struct and of its nested structs. A nested struct precedes every
    struct that has a field of it."""
    seen: set[str] = set()

    def walk(inner: StructSchema) -> Iterator[StructSchema]:
        seen.add(inner.name)
        for field in inner.fields:
            if field.struct is not None and field.struct.name not in seen:
                yield from walk(field.struct)
        yield inner

    return walk(struct)


def _constants(file: str, schema: MessageSchema) -> list[str]:
    versions = schema.versions
    bounds = f"{versions.start}, {versions.stop}" if versions.start else f"{versions.stop}"
    return [
        f"API_KEY = {schema.key}",
        f"VERSIONS = range({bounds})",
        f"FLEXIBLE_FROM = {schema.flexible_from}",
        f'SCHEMA = "{file}"',
    ]


def _imports(body: str) -> str:
    """Return the import lines that the generated classes in the source text `body` need, sorted as
    by ruff."""
    used = [
        name
        for name in ("EMPTY", "ZERO_UUID", "Message", "Records", "Struct")
        if re.search(rf"\b{name}\b", body)
    ]
    text = f"from ottla.wire.codec_types import {', '.join(used)}\n"
    return f"from uuid import UUID\n\n{text}" if "UUID" in re.findall(r"\w+", body) else text


def _class_text(struct: StructSchema, constants: list[str] | None) -> str:
    parent = "Struct" if constants is None else "Message"
    lines = [f"class {struct.name}({parent}):"]
    lines += _slots([field.name for field in struct.fields])
    lines += [f"    {constant}" for constant in constants or []]
    if struct.fields:
        lines += ["", "    def __init__(", "        self,", "        *,"]
        lines += [f"        {_parameter(field)}," for field in struct.fields]
        lines += ["    ) -> None:"]
        for field in struct.fields:
            lines += _assignment(field)
    return "\n".join(lines)


def _slots(names: list[str]) -> list[str]:
    if len(names) > 1:
        return ["    __slots__ = (", *(f'        "{name}",' for name in names), "    )"]
    return [f'    __slots__ = ("{names[0]}",)' if names else "    __slots__ = ()"]


def _parameter(field: Field) -> str:
    kind = python_type(field)
    if field.struct is not None and not field.is_array and not field.is_null_by_default:
        return f"{field.name}: {kind} | None = None"
    return f"{field.name}: {kind} = {_default_text(field)}"


def python_type(field: Field) -> str:
    """Return the Python type annotation of the attribute for a schema's field."""
    element = field.type if field.struct is not None else _PYTHON_TYPES.get(field.type, "int")
    text = f"list[{element}]" if field.is_array else element
    return f"{text} | None" if field.nullable else text


def _default_text(field: Field) -> str:
    if field.is_null_by_default:
        return "None"
    if field.is_array:
        return "EMPTY"
    if field.type == "records":
        return 'b""'
    return _EMPTY_VALUES.get(field.type, repr(field.default))


def _assignment(field: Field) -> list[str]:
    name = field.name
    value = name
    if field.is_array and not field.is_null_by_default:
        value = f"[] if {name} is EMPTY else {name}"
    elif field.struct is not None and not field.is_array and not field.is_null_by_default:
        value = f"{field.type}() if {name} is None else {name}"
    line = f"        self.{name} = {value}"
    if len(line) <= LINE_LENGTH:
        return [line]
    return [f"        self.{name} = (", f"            {value}", "        )"]


def main(added: list[str]) -> int:
    """Rewrite the files of `messages/`, and write files for the messages in `added`. Returns the
    exit code."""
    folder = Path(__file__).parent / "messages"
    if unknown := [message for message in added if message not in schema_files()]:
        print(f"no schema declares {', '.join(unknown)}", file=sys.stderr)
        return 1
    stems = {path.stem for path in folder.glob("*.py")}
    for message in schema_files():
        stem = module_name(message)
        if stem in stems or message in added:
            (folder / f"{stem}.py").write_text(generate(message))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
