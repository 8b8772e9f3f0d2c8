"""The setting `ssl.principal.mapping.rules`, which maps the distinguished name of a client's
certificate to a user.

Pure. The setting is a comma-separated list of `DEFAULT` (the name unchanged) and
`RULE:PATTERN/REPLACEMENT/[L|U]`. The first rule whose pattern matches the whole name, in the form
of RFC 2253, applies. If no rule matches, the client is not authenticated.

Patterns have RE2's syntax, because RE2's running time is linear in the length of the name. RE2 has
no look-around and no back references, so a node refuses to start with such patterns. Replacements
have the meaning of Java's `replaceAll`, as in Kafka: `$1` is a group, a backslash is the escape
character, and every match is replaced.
"""

import re
from collections.abc import Callable
from dataclasses import field
from typing import Any

from ottla.model.values import frozen

DEFAULT_RULE = "DEFAULT"

RULE_COUNT_MAX = 500
"""Maximum number of rules for one listener. The number is limited because each login tries the
rules in order."""

NAME_LENGTH_MAX = 1_024
"""Maximum length, in characters, of a distinguished name to which rules are applied. A client
chooses the name, and a rule may replace each character separately. For comparison, X.520 allows 64
characters for a common name or an organisation."""

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/"
    r"(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE = re.compile(
    r"\$(?:(?P<number>\d+)|\{(?P<name>\w+)\})|\\(?P<literal>.)|(?P<text>[^$\\]+)"
)

Replacement = tuple[str | int, ...]
"""Parsed replacement text of a rule: literal texts and group numbers, in order."""


@frozen
class PrincipalRule:
    """One rule of `ssl.principal.mapping.rules`. Its pattern is None for DEFAULT."""

    pattern: Any = field(default=None, compare=False)
    replacement: Replacement = ()
    letter_case: str = ""
    text: str = DEFAULT_RULE
    """The rule as written in the setting."""

    def apply(self, name: str) -> str | None:
        """Return the user for a distinguished name, or None if the rule does not match it."""
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
    """Rules of one listener from `ssl.principal.mapping.rules`, in order."""

    rules: tuple[PrincipalRule, ...] = (PrincipalRule(),)

    def user_of(self, name: str) -> str | None:
        """Return the user for a distinguished name, or None if no rule matches or the name is too
        long.

        If the matching rule results in an empty user, the method returns None as well. Kafka would
        accept the empty user.
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
    """a list of DEFAULT or RULE:PATTERN/REPLACEMENT/[L|U], first match first.

    Returns the parsed rules of `ssl.principal.mapping.rules`. Raises ValueError if the text is
    malformed. The first line above describes the valid texts in error messages.
    """
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
    # Imported at the first rule: a process without rules does not need the library.
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
    """Return a parsed replacement. Raises ValueError if it names a group that the pattern lacks."""
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
    """Return the group in `$digits`: the longest prefix that is the number of a group, and the
    remaining digits as text.

    If the pattern has groups, a number that is not one of them is literal text, as in Kafka. If the
    pattern has no groups, any number is an error.
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
