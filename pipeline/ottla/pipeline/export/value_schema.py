"""Conversion of schemas for JSON values from Spark's DDL to Arrow types. Pure.

`ottla pipeline archive --schema` accepts the same text. Types without a form in JSON (BINARY, MAP,
INTERVAL, …) are refused.
"""

import re

import pyarrow as pa

from ottla.model.errors import ConfigError
from ottla.pipeline.run.ddl import ddl_problem

TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
}
DECIMALS = frozenset(("decimal", "dec", "numeric"))
DECIMAL_DEFAULT = (10, 0)
"""Default precision and scale of Spark's DECIMAL."""
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|\S)")


def value_type_of(option: str, text: str) -> pa.StructType:
    """Return the Arrow type of a DDL text such as 'id BIGINT, tags ARRAY<STRING>'.

    Raises ConfigError if the text is malformed or has a type without a form in JSON. `option` is
    the name of the option with the text, for the error message.
    """
    why = ddl_problem(text)
    if why:
        raise ConfigError(
            option, f"{text!r} is no DDL such as 'id BIGINT, name STRING', nor a file: {why}"
        )
    return _DdlTypes(option, _TOKEN.findall(text)).columns()


class _DdlTypes:
    """Parser of a DDL text whose syntax is valid."""

    def __init__(self, option: str, tokens: list[str]) -> None:
        self._option = option
        self._tokens = tokens
        self._at = 0

    def columns(self) -> pa.StructType:
        if self._peek() == "struct" and self._tokens[1:2] == ["<"]:
            found: pa.StructType = self._type("the schema")
            return found
        return self._fields("")

    def _fields(self, end: str) -> pa.StructType:
        fields: dict[str, pa.DataType] = {}
        while (name := self._peek_as_written()) != end:
            self._take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if name in fields:
                raise ConfigError(self._option, f"has the column {name} twice")
            if self._peek() == ":":
                self._take()
            fields[name] = self._type(f"the column {name}")
            if self._peek() == ",":
                self._take()
        if not fields:
            raise ConfigError(self._option, "names no fields")
        return pa.struct(list(fields.items()))

    def _type(self, what: str) -> pa.DataType:
        word = self._take().lower()
        found: pa.DataType | None = TYPES.get(word)
        if word == "struct":
            self._take()
            found = self._fields(">")
            self._take()
        elif word == "array":
            self._take()
            found = pa.list_(pa.field("element", self._type(what)))
            self._take()
        elif word in DECIMALS:
            found = self._decimal(what)
        if found is None or self._peek() not in ("", ",", ">"):
            part = word if found is None else self._peek()
            raise ConfigError(
                self._option,
                f"{what} has {part.upper()}; it may have {', '.join(sorted(TYPES)).upper()}, "
                "DECIMAL, ARRAY and STRUCT, without clauses",
            )
        return found

    def _decimal(self, what: str) -> pa.DataType:
        words = []
        if self._peek() == "(":
            while self._take() != ")":
                words.append(self._peek())
        numbers = [int(one) for one in words if one.isdecimal()]
        precision, scale = [*numbers, *DECIMAL_DEFAULT[len(numbers) :]][:2]
        try:
            return pa.decimal128(precision, scale)
        except (ValueError, pa.ArrowInvalid) as error:
            raise ConfigError(self._option, f"{what}: {error}") from None

    def _peek(self) -> str:
        return self._peek_as_written().lower()

    def _peek_as_written(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        word = self._tokens[self._at]
        self._at += 1
        return word
