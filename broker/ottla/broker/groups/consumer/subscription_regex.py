"""Compiles and matches the regular expressions of subscriptions, in RE2's syntax as in Kafka's
coordinator. Pure.

Clients write the expressions, and the broker matches each of them with every topic. The cost of a
match must therefore be bounded. For every expression, RE2 takes time linear in the length of the
name. It therefore supports no back references and no look-around. This module bounds the size of an
expression.
"""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NewType

from ottla.model.errors import ErrorCode, RefusedError

if TYPE_CHECKING:
    import re2

TopicRegex = NewType("TopicRegex", object)
"""Compiled regular expression over topic names."""

REGEX_CHARS_MAX = 4_096
"""Maximum number of characters in the regular expression of a subscription. A smaller maximum
refuses a list of a few hundred topic names. With a ten times larger maximum, checking an invalid
expression may take a second."""

PROGRAM_BYTES_MAX = 64 << 10
"""Maximum memory in bytes of one compiled regular expression. With a smaller limit, `.{200}` would
be refused. With 128 KiB, some expressions take milliseconds for each name."""


UNICODE_CLASSES_MAX = 8
r"""Maximum number of Unicode classes, such as `\pL`, in one regular expression. Each class has
hundreds of ranges and takes a millisecond to compile, even if the expression is then refused. Topic
names do not need Unicode classes."""


@cache
def _options() -> "re2.Options":
    # Imported at the first expression, since most brokers never need it.
    import re2

    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.never_capture = True
    # RE2 would write every client's mistake to standard error.
    options.log_errors = False
    return options


def compile_topic_regex(text: str) -> TopicRegex:
    """Compile and return a regular expression over topic names.

    Raises RefusedError with INVALID_REGULAR_EXPRESSION if the expression is invalid or too large.
    """
    if len(text) > REGEX_CHARS_MAX:
        raise _refusal(f"of {len(text)} characters", f"at most {REGEX_CHARS_MAX} are served")
    class_count = text.count("\\p") + text.count("\\P")
    if class_count > UNICODE_CLASSES_MAX:
        at_most = f"at most {UNICODE_CLASSES_MAX} are served"
        raise _refusal(f"with {class_count} Unicode classes", at_most)
    import re2

    try:
        return TopicRegex(re2.compile(text, _options()))
    except re2.error as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise _refusal(f"`{text}`", shown) from None


def instruction_count(regex: TopicRegex) -> int:
    """Return the number of instructions in a compiled regular expression. The cost of each matched
    character is proportional to it."""
    size: int = regex.programsize  # type: ignore[attr-defined]
    return size


def matches(regex: TopicRegex, names: Iterable[str]) -> frozenset[str]:
    """Return the names that match the whole regular expression, not only a part of it."""
    return frozenset(name for name in names if regex.fullmatch(name))  # type: ignore[attr-defined]


def _refusal(what: str, reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex {what} is not a valid regular expression: {reason}.",
    )
