"""The exception for a broken invariant, with the name of the invariant, and functions that convert
other exceptions to this one. The module does no I/O."""

import re
from collections.abc import Callable

_NAMED = re.compile(r"([A-Z][A-Za-z]+): (.*)", re.DOTALL)

NO_ASSERTION_FAILS = "NoAssertionFails"
"""Name of the invariant "no assertion fails". It is reported if an assertion of the code under test
fails without naming another invariant."""

NOTHING_ESCAPES = "NothingEscapes"
"""Name of the invariant "the code under test raises no exception outside its contract"."""


class Violation(AssertionError):  # noqa: N818 - what was found, not what went wrong here
    """The exception for a broken invariant of the simulated system. `detail` describes the place
    and the values with which it was broken."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, str]]:
        """Return the arguments for pickling the exception, so that it can be sent between
        processes."""
        return Violation, (self.invariant, self.detail)


def violation_of(error: Exception) -> Violation:
    """Convert an exception that a simulated run raised to a violation, and return it.

    If the message of an assertion begins with the name of an invariant, the violation has this
    name.
    """
    if isinstance(error, Violation):
        return error
    text = str(error)
    if isinstance(error, AssertionError):
        named = _NAMED.fullmatch(text)
        if named is not None:
            return Violation(named[1], named[2])
        return Violation(NO_ASSERTION_FAILS, text or _place_of(error))
    return Violation(NOTHING_ESCAPES, f"{type(error).__name__}: {text} ({_place_of(error)})")


def violation_in(run: Callable[[], None]) -> Violation | None:
    """Run one simulation by calling `run`. Returns a raised exception as a violation, or None if no
    exception was raised."""
    try:
        run()
    except Exception as error:
        return violation_of(error)
    return None


def _place_of(error: Exception) -> str:
    """Return the place in the code that raised an error: file name, line number and function name.
    The result contains no directories of this machine."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return "nowhere"
    code = at.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{at.tb_lineno} in {code.co_name}"
