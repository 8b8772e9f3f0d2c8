"""Parses the filter of a page of records: a small language without calls, loops or backtracking.
Pure.

    value.user.id = 17 and not header["trace-id"] ~ "^a{8}" or timestamp >= "2026-11-29T07:00"

- properties: `key`, `value`, fields such as `value.items[0].name` and `key["a b"]`, `header.NAME`,
  `offset`, `partition`, `timestamp`, `size`
- comparisons: `=`, `!=`, `<`, `<=`, `>`, `>=`, `in (1, 2)`, `contains`, `starts`, `ends`, `~`
  (RE2), `exists`
- literals: `"text"` with the escapes of JSON, numbers, `true`, `false`, `null`; times as in
  `ottla topic trim --before-time`
- words: `and`, `or`, `not`, parentheses

`value` and `key` alone are text. A field belongs to the decoded object. Numbers are exact: 64-bit
integers and decimals are never rounded. The work for one record is bounded by the filter's terms
and the record's size: RE2's time is linear, and its memory limited.
"""

import json
import re
from decimal import Decimal
from typing import Any, NamedTuple

import re2

from ottla.console.records.filter_terms import (
    ATTRIBUTES,
    MISSING,
    Operand,
    Scalar,
    Test,
    all_of,
    any_of,
    is_equal,
    is_ordered,
    text_of,
)
from ottla.model.errors import ConfigError
from ottla.model.limits import KIB
from ottla.model.points_in_time import parse_time
from ottla.model.values import frozen

FILTER = "filter"
"""Name of the filter of records in error messages."""
FILTER_CHARS_MAX = 2_000
TERMS_MAX = 50
"""Maximum number of comparisons in a filter of records."""
NESTING_MAX = 20
PATH_STEPS_MAX = 20
LIST_MAX = 100
"""Maximum number of literals in the list of a filter's operator `in`."""
PATTERN_CHARS_MAX = 500
PATTERN_BYTES_MAX = 256 * KIB
"""Maximum memory, in bytes, of one compiled regular expression of a filter."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<sign><=|>=|!=|==|[=<>~().,\[\]])
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_WORDS = frozenset({"and", "or", "not"})
_SEARCHES = frozenset({"contains", "starts", "ends", "~"})
_ORDERS = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}


class _Token(NamedTuple):
    """One word, literal or sign in the text of a filter."""

    kind: str
    text: str
    at: int
    """Number of characters before the token in the filter's text."""


@frozen(kw_only=True)
class RecordFilter:
    """A parsed filter of records, as a function that tests a record."""

    text: str
    matches: Test
    """Function that returns whether a record matches the filter."""
    reads_content: bool
    """True if the filter reads keys, values or headers of records. If the console hides messages, a
    user could guess them with such a filter."""


def parse_filter(text: str, *, now_ms: int) -> RecordFilter | None:
    """Parse the text of a filter of records. Returns None if the text is blank. `now_ms` is the
    present time, in ms since 1970, for literals such as `timestamp > "2h"`.

    Raises ConfigError, with the position of the mistake, if the text is not a filter.
    """
    if not text.strip():
        return None
    if len(text) > FILTER_CHARS_MAX:
        raise ConfigError(FILTER, f"is longer than {FILTER_CHARS_MAX:,} characters")
    parser = _Parser(_tokens(text), now_ms)
    test = parser.disjunction(0)
    parser.expect_end()
    return RecordFilter(text=text.strip(), matches=test, reads_content=parser.reads_content)


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise _mistake(at, f"{text[at : at + 20]!r} is not understood")
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    found.append(_Token("end", "the end", end))
    return found


class _Parser:
    """Recursive descent parser of a filter's tokens. The depth of its recursion is at most
    NESTING_MAX."""

    def __init__(self, tokens: list[_Token], now_ms: int) -> None:
        self._tokens = tokens
        self._at = 0
        self._now_ms = now_ms
        self._term_count = 0
        self.reads_content = False

    def disjunction(self, depth: int) -> Test:
        """Parse terms of the filter that are joined by `or`. Returns a function that tests a
        record."""
        tests = [self._conjunction(depth)]
        while self._accept("or"):
            tests.append(self._conjunction(depth))
        return tests[0] if len(tests) == 1 else any_of(tests)

    def expect_end(self) -> None:
        """Raise ConfigError if tokens of the filter remain after the parsed expression."""
        token = self._tokens[self._at]
        if token.kind != "end":
            raise _mistake(token.at, f"'and', 'or' or the end is expected, not {token.text[:20]!r}")

    def _conjunction(self, depth: int) -> Test:
        tests = [self._negation(depth)]
        while self._accept("and"):
            tests.append(self._negation(depth))
        return tests[0] if len(tests) == 1 else all_of(tests)

    def _negation(self, depth: int) -> Test:
        is_negated = False
        while self._accept("not"):
            is_negated = not is_negated
        test = self._term(depth)
        return (lambda record: not test(record)) if is_negated else test

    def _term(self, depth: int) -> Test:
        token = self._tokens[self._at]
        if self._accept("("):
            if depth >= NESTING_MAX:
                raise _mistake(token.at, f"parentheses are nested more than {NESTING_MAX} times")
            test = self.disjunction(depth + 1)
            self._expect(")")
            return test
        self._term_count += 1
        if self._term_count > TERMS_MAX:
            raise _mistake(token.at, f"there are more than {TERMS_MAX} comparisons")
        operand = self._operand()
        return self._comparison(operand)

    def _operand(self) -> Operand:
        token = self._next()
        root = {"headers": "header"}.get(token.text, token.text)
        if token.kind != "word" or not (root in ATTRIBUTES or root == "header"):
            names = ", ".join([*ATTRIBUTES, "header"])
            raise _mistake(token.at, f"{token.text[:20]!r} is no property; there are {names}")
        path: list[str | int] = []
        while True:
            if self._accept("."):
                step = self._next()
                if step.kind != "word":
                    raise _mistake(
                        step.at, 'a name is expected after the dot; quote others: ["a b"]'
                    )
                path.append(step.text)
            elif self._accept("["):
                step = self._next()
                if step.kind not in ("text", "number"):
                    raise _mistake(step.at, "a number or a quoted name is expected in brackets")
                literal = _literal(step)
                path.append(literal if isinstance(literal, str) else int(step.text.split(".")[0]))
                self._expect("]")
            else:
                break
            if len(path) > PATH_STEPS_MAX:
                raise _mistake(token.at, f"the path has more than {PATH_STEPS_MAX} steps")
        if root == "header" and len(path) != 1:
            raise _mistake(token.at, 'a header needs one name: header.NAME or header["a b"]')
        if path and root not in ("key", "value", "header"):
            raise _mistake(token.at, f"{root} has no fields")
        operand = Operand(root, tuple(path))
        self.reads_content = self.reads_content or operand.is_content
        return operand

    def _comparison(self, operand: Operand) -> Test:
        read, token = operand.read, self._next()
        if token.text == "exists":
            return lambda record: (found := read(record)) is not MISSING and found is not None
        if token.text == "in":
            literals = self._list(operand)
            return lambda record: any(is_equal(read(record), one) for one in literals)
        if token.text in ("=", "=="):
            equal = self._literal_for(operand)
            return lambda record: is_equal(read(record), equal)
        if token.text == "!=":
            unequal = self._literal_for(operand)
            return lambda record: not is_equal(read(record), unequal)
        if token.text in _ORDERS:
            signs, bound = _ORDERS[token.text], self._literal_for(operand)
            return lambda record: is_ordered(read(record), bound, signs)
        if token.text in _SEARCHES:
            return self._search(operand, token.text)
        raise _mistake(
            token.at,
            f"a comparison is expected, such as = or contains, not {token.text[:20]!r}",
        )

    def _search(self, operand: Operand, name: str) -> Test:
        token = self._next()
        if token.kind != "text":
            raise _mistake(token.at, f'a quoted text is expected after {name}: {name} "text"')
        wanted = str(_literal(token))
        find: Any
        match name:
            case "contains":
                find = lambda text: wanted in text  # noqa: E731 - one of four
            case "starts":
                find = lambda text: text.startswith(wanted)  # noqa: E731
            case "ends":
                find = lambda text: text.endswith(wanted)  # noqa: E731
            case _:
                find = _pattern(token.at, wanted)
        read = operand.read

        def test(record: Any) -> bool:
            text = text_of(read(record))
            return text is not None and bool(find(text))

        return test

    def _list(self, operand: Operand) -> list[Scalar]:
        opened = self._expect("(")
        literals = [self._literal_for(operand)]
        while self._accept(","):
            literals.append(self._literal_for(operand))
            if len(literals) > LIST_MAX:
                raise _mistake(opened.at, f"the list has more than {LIST_MAX} entries")
        self._expect(")")
        return literals

    def _literal_for(self, operand: Operand) -> Scalar:
        token = self._next()
        literal = _literal(token)
        if operand.root == "timestamp" and isinstance(literal, str):
            try:
                return parse_time("time", literal, self._now_ms)
            except (ConfigError, OverflowError) as error:
                raise _mistake(token.at, str(error)) from None
        return literal

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _accept(self, text: str) -> bool:
        token = self._tokens[self._at]
        is_it = token.kind in ("word", "sign") and token.text == text
        self._at += is_it
        return is_it

    def _expect(self, text: str) -> _Token:
        token = self._tokens[self._at]
        if not self._accept(text):
            raise _mistake(token.at, f"{text!r} is expected, not {token.text[:20]!r}")
        return token


def _literal(token: _Token) -> Scalar:
    if token.kind == "number":
        return Decimal(token.text) if "." in token.text else int(token.text)
    if token.kind == "text":
        try:
            return str(json.loads(token.text, strict=False))
        except ValueError:
            raise _mistake(token.at, "the text has an unknown escape; write \\\\ for \\") from None
    if token.text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[token.text]
    raise _mistake(
        token.at, f'a number, true, false, null or "text" is expected, not {token.text[:20]!r}'
    )


def _pattern(at: int, pattern: str) -> Any:
    """Return RE2's search function for the regular expression at position `at` of a filter."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise _mistake(at, f"the pattern is longer than {PATTERN_CHARS_MAX} characters")
    options = re2.Options()
    options.max_mem = PATTERN_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options).search
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise _mistake(at, f"RE2 refuses the pattern: {str(reason)[:200]}") from None


def _mistake(at: int, problem: str) -> ConfigError:
    return ConfigError(FILTER, f"at character {at + 1}: {problem}")
