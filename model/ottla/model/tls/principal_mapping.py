"""`ssl.principal.mapping.rules`: the user that a certificate's distinguished name stands for.

Pure.  A comma-separated list of `DEFAULT` (the name as it is) and `RULE:PATTERN/REPLACEMENT/[L|U]`.
The first rule whose pattern matches the whole name in RFC 2253's form decides; if none does, the
client is not authenticated.  Patterns are RE2's, which no name can make slow; look-around and back
references within a pattern are refused at the start.  What a replacement means (`$1`, a backslash
before a sign, every match replaced) is Java's `replaceAll`, as Kafka uses it.
"""

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

from ottla.model.values import frozen

DEFAULT_RULE = "DEFAULT"

RULE_COUNT_MAX = 500
"""Rules of one listener.  Each login tries them in order."""

NAME_LENGTH_MAX = 1_024
"""Characters of a distinguished name that rules are tried on: a client chooses it, and a rule may
replace each character by itself.  X.520 allows 64 to a common name or an organisation.
"""

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/"
    r"(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE = re.compile(
    r"\$(?:(?P<number>\d+)|\{(?P<name>\w+)\})|\\(?P<literal>.)|(?P<text>[^$\\]+)"
)

Replacement = tuple[str | int, ...]
"""Literal text and numbers of groups, in order."""


@frozen
class PrincipalRule:
    """One rule; `pattern` is None for DEFAULT."""

    pattern: Any = field(default=None, compare=False)
    replacement: Replacement = ()
    letter_case: str = ""
    text: str = DEFAULT_RULE
    """The rule as it was written."""

    def apply(self, name: str) -> str | None:
        """Return the user for a distinguished name, None where the rule does not match it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        user = str(self.pattern.sub(self._replaced, name))
        change: Callable[[str], str] | None = {"L": str.lower, "U": str.upper}.get(self.letter_case)
        return user if change is None else change(user)

    def _replaced(self, found: Any) -> str:
        return "".join(
            part if isinstance(part, str) else found.group(part) or "" for part in self.replacement
        )


@frozen
class PrincipalRules:
    """The rules of a listener, in order."""

    rules: tuple[PrincipalRule, ...] = (PrincipalRule(),)

    def user_of(self, name: str) -> str | None:
        """Return the user for a distinguished name, None where no rule matches or it is too long.

        Nor is an empty user one, which Kafka would let in.
        """
        if len(name) > NAME_LENGTH_MAX:
            return None
        for rule in self.rules:
            user = rule.apply(name)
            if user is not None:
                return user or None
        return None

    def __str__(self) -> str:
        return ",".join(rule.text for rule in self.rules)


def parse_principal_rules(text: str) -> PrincipalRules:
    """a list of DEFAULT or RULE:PATTERN/REPLACEMENT/[L|U], first match first."""
    rules: list[PrincipalRule] = []
    text = text.strip()
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None or len(rules) == RULE_COUNT_MAX:
            raise ValueError(text)
        rules.append(PrincipalRule() if found["default"] else _rule(found))
        at = found.end()
    if not rules:
        raise ValueError(text)
    return PrincipalRules(tuple(rules))


def _rule(found: "re.Match[str]") -> PrincipalRule:
    # Loaded with the first rule: a process without one does without the library.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(found["pattern"], options)
    except re2.error as error:
        raise ValueError(found["pattern"]) from error
    text = f"RULE:{found['pattern']}/{found['replacement']}/{found['case']}"
    return PrincipalRule(pattern, _replacement(found["replacement"], pattern), found["case"], text)


def _replacement(text: str, pattern: Any) -> Replacement:
    """Read a replacement; ValueError where it names a group that the pattern does not have."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _REFERENCE.match(text, at)
        if found is None:
            raise ValueError(text)
        at = found.end()
        if found["number"] is not None:
            parts += _numbered(found["number"], pattern.groups)
        elif found["name"] is not None:
            parts.append(_named(found["name"], pattern))
        else:
            parts.append(found["literal"] or found["text"])
    return tuple(parts)


def _numbered(digits: str, group_count: int) -> list[str | int]:
    """Return the group of `$digits`: as many digits as make one there is, the rest is text.

    With groups, a number beyond them is literal text, as in Kafka; without any it is a mistake.
    """
    for size in range(len(digits), 0, -1):
        if int(digits[:size]) <= group_count:
            return [int(digits[:size]), digits[size:]]
    if not group_count:
        raise ValueError(digits)
    return [f"${digits}"]


def _named(name: str, pattern: Any) -> int:
    if name not in pattern.groupindex:
        raise ValueError(name)
    return int(pattern.groupindex[name])
