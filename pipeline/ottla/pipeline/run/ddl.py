"""Finds mistakes in a schema's DDL without a JVM: in columns, brackets and names of types. Pure.

Spark's own parser needs a JVM, which takes seconds to start. Spark would also refuse every mistake
that is found here. Column clauses that are unusual in a schema (COLLATE, DEFAULT, …) are not
checked, but left to Spark. Source: Spark's SQL reference, "Data Types".
"""

import re
from difflib import get_close_matches

TYPES = frozenset(
    (
        *("boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
        *("float", "real", "double", "decimal", "dec", "numeric", "date", "time", "timestamp"),
        *("timestamp_ntz", "timestamp_ltz", "string", "char", "character", "varchar", "binary"),
        *("void", "interval", "variant", "geometry", "geography"),
    )
)
NESTED = {"array": 1, "map": 2}
"""Number of types in the angle brackets of each nested DDL type, by the type's name."""
STRUCT = "struct"
DEPTH_MAX = 100
"""Maximum depth of nested brackets in a DDL text. Schemas that people write are never deeper."""
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|\S)")
_NAME = re.compile(r"`.*`|\w+", re.DOTALL)


class _DdlError(Exception):
    """Raised for a mistake in the DDL text of a schema."""


def ddl_problem(text: str) -> str:
    """Return the error message for a DDL text such as 'id BIGINT, name STRING', or an empty text if
    it is valid."""
    try:
        reader = _DdlReader(_TOKEN.findall(text))
        if reader.next_is(STRUCT) and reader.is_nested:
            reader.read_type("the schema", 0)
        else:
            reader.read_columns(end="", depth=0)
        reader.expect_end()
    except _DdlError as error:
        return str(error)
    return ""


class _DdlReader:
    """Parser of a schema's DDL text, which was split into tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def is_nested(self) -> bool:
        return self._tokens[self._at + 1 : self._at + 2] == ["<"]

    def next_is(self, word: str) -> bool:
        return self._peek().lower() == word

    def expect_end(self) -> None:
        if self._peek():
            raise _DdlError(f"{self._peek()!r} is not expected behind {self._before()}")

    def read_columns(self, *, end: str, depth: int) -> None:
        if end and self._peek() == end:
            return
        while True:
            name = self._take()
            if not _NAME.fullmatch(name):
                what = repr(name) if name else "nothing"
                raise _DdlError(f"{what} stands where the name of a column is expected")
            if self._peek() == ":":
                self._take()
            self.read_type(f"the column {name}", depth)
            self._pass_clauses()
            if self._peek() != ",":
                return
            self._take()

    def read_type(self, what: str, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise _DdlError(f"{what} is nested more than {DEPTH_MAX} deep")
        word = self._take()
        name = word.lower()
        if not word or word in ",>)":
            raise _DdlError(f"{what} has no type")
        if name == STRUCT:
            self._expect("<", what)
            self.read_columns(end=">", depth=depth + 1)
            self._expect(">", what)
        elif name in NESTED:
            self._expect("<", what)
            for index in range(NESTED[name]):
                if index:
                    self._expect(",", what)
                self.read_type(what, depth + 1)
                self._pass_clauses()
            self._expect(">", what)
        elif name not in TYPES:
            near = get_close_matches(name, [*TYPES, *NESTED, STRUCT], n=1)
            hint = f"; is it {near[0].upper()}?" if near else ""
            raise _DdlError(f"{what} has the type {word}, which Spark does not know{hint}")
        elif self._peek() == "(":
            self._pass_brackets(what)

    def _pass_clauses(self) -> None:
        """Skip NOT NULL, COMMENT '…' and other clauses that Spark may accept after a type in
        DDL."""
        while self._peek() not in ("", ",", ">", ")"):
            if self._peek() == "(":
                self._pass_brackets(self._before())
            else:
                self._take()

    def _pass_brackets(self, what: str) -> None:
        depth = 0
        while True:
            word = self._take()
            if not word:
                raise _DdlError(f"{what} lacks a ')'")
            depth += (word == "(") - (word == ")")
            if not depth:
                return

    def _expect(self, wanted: str, what: str) -> None:
        found = self._take()
        if found != wanted:
            raise _DdlError(
                f"{what} lacks a {wanted!r} before {found!r}"
                if found
                else f"{what} lacks a {wanted!r} at the end"
            )

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _before(self) -> str:
        return repr(self._tokens[self._at - 1]) if self._at else "the beginning"

    def _take(self) -> str:
        word = self._peek()
        self._at += 1
        return word
