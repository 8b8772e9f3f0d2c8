"""A broken invariant, by its name."""

import re
from collections.abc import Callable

_NAMED = re.compile(r"([A-Z][A-Za-z]+): (.*)", re.DOTALL)

NO_ASSERTION_FAILS = "NoAssertionFails"
"""The invariant that a core's own unnamed assertions hold."""

NOTHING_ESCAPES = "NothingEscapes"
"""The invariant that no core ends with an error which is not its to raise."""


class Violation(AssertionError):  # noqa: N818 - what was found, not what went wrong here
    """An invariant does not hold; `detail` says where and how."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail

    def __reduce__(self) -> tuple[type["Violation"], tuple[str, str]]:
        """Travel between processes whole."""
        return Violation, (self.invariant, self.detail)


def violation_of(error: Exception) -> Violation:
    """Return what an error that ended a run says about the cores.

    Their own assertions often begin with the invariant's name.
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
    """Run to the end or to the first error; return what that one says, None when there is none."""
    try:
        run()
    except Exception as error:
        return violation_of(error)
    return None


def _place_of(error: Exception) -> str:
    """Return the function and line that raised, without the machine's paths."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return "nowhere"
    code = at.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{at.tb_lineno} in {code.co_name}"
