"""Regular expressions that subscribe topics, in RE2's syntax as Kafka's coordinator has it.  Pure.

Clients write them and the broker holds them against every topic, so they must not cost what their
authors like: RE2 takes time linear in the name, whatever the expression; how large one may become
is bounded here.  It has no back references and no look-around for that.
"""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NewType

from ottla.model.errors import ErrorCode, RefusedError

if TYPE_CHECKING:
    import re2

TopicRegex = NewType("TopicRegex", object)
"""A regular expression that is ready to be held against names."""

REGEX_CHARS_MAX = 4_096
"""Less does not hold a list of some hundred names; ten times as many take a second to refuse."""

PROGRAM_BYTES_MAX = 64 << 10
"""Memory of one compiled expression.  With less, `.{200}` is refused; with 128 KiB one can be
written that takes milliseconds a name."""


UNICODE_CLASSES_MAX = 8
"""Classes such as `\\pL` in one expression.  Each has hundreds of ranges and takes a millisecond to
compile, also where the whole is then refused; topics' names have no use for them."""


@cache
def _options() -> "re2.Options":
    # Loaded with the first expression: most brokers never see one.
    import re2

    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.never_capture = True
    # It would write every client's mistake to standard error.
    options.log_errors = False
    return options


def compile_topic_regex(text: str) -> TopicRegex:
    """Return the expression; INVALID_REGULAR_EXPRESSION where it is none, or too large."""
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
    """Return the size of the program: what a character of a name costs is proportional to it."""
    size: int = regex.programsize  # type: ignore[attr-defined]
    return size


def matches(regex: TopicRegex, names: Iterable[str]) -> frozenset[str]:
    """Return the names that match as a whole."""
    return frozenset(name for name in names if regex.fullmatch(name))  # type: ignore[attr-defined]


def _refusal(what: str, reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex {what} is not a valid regular expression: {reason}.",
    )
