"""Writes the message classes: `python -m ottla.wire.generator` after a change of a schema.

One module of `messages/` per message of `schemas/`, committed so that people and type checkers can
read them; a test proves that they are what this module would write.  The functions that turn bytes
into these classes are not written here: `codec` compiles them when they are first needed.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

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


def generate() -> dict[str, str]:
    """Give the text of every module of `messages/`, by module name."""
    files = sorted(path.stem for path in _folder("schemas").glob("*.schema"))
    return {
        module_name(schema.root.name): module_text(file, schema)
        for file in files
        for schema in load(file).values()
    }


def module_text(file: str, schema: MessageSchema) -> str:
    """Write the module of one message."""
    ordered = list(_innermost_first(schema.root))
    classes = [_class_text(struct, None) for struct in ordered[:-1]]
    classes.append(_class_text(schema.root, _constants(file, schema)))
    body = "\n\n\n".join(classes)
    title = f'"""{schema.root.name}.\n\nGenerated from schemas/{file}.schema; never edited.\n"""'
    if any(_is_out_of_order(struct) for struct in ordered):
        title += "\n\n# ruff: noqa: RUF023  # slots stand in the order of the wire"
    return f"{title}\n\n{_imports(body)}\n\n{body}\n"


def _is_out_of_order(struct: StructSchema) -> bool:
    """Return whether ruff would sort these slots, numbers in names by their value."""
    names = [re.split(r"(\d+)", field.name) for field in struct.fields]
    keys = [[int(part) if part.isdigit() else part for part in name] for name in names]
    return keys != sorted(keys)


def _innermost_first(struct: StructSchema) -> Iterator[StructSchema]:
    """Walk the structs so that each comes after those that its fields name."""
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
    """Import what the classes use, sorted as ruff sorts."""
    used = [
        name
        for name in ("EMPTY", "ZERO_UUID", "Message", "Records", "Struct", "fresh")
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
    python_type = _python_type(field)
    if field.struct is not None and not field.is_array and not field.is_null_by_default:
        return f"{field.name}: {python_type} | None = None"
    return f"{field.name}: {python_type} = {_default_text(field)}"


def _python_type(field: Field) -> str:
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
        value = f"fresh({name})"
    elif field.struct is not None and not field.is_array and not field.is_null_by_default:
        value = f"{field.type}() if {name} is None else {name}"
    line = f"        self.{name} = {value}"
    if len(line) <= LINE_LENGTH:
        return [line]
    return [f"        self.{name} = (", f"            {value}", "        )"]


def _folder(name: str) -> Path:
    return Path(__file__).parent / name


def main() -> int:
    """Rewrite `messages/`; the modules of messages that are gone are removed."""
    folder = _folder("messages")
    texts = generate()
    for path in folder.glob("*.py"):
        if path.stem != "__init__" and path.stem not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    print(f"{len(texts)} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
