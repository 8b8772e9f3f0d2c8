"""Compiled and interpreted form of Ottla: which form is installed, and class attributes for the
compiler mypyc.

`mypyc_attr` has no effect on an interpreted class; mypyc reads and removes it. It replaces the
function of the same name in the package mypy_extensions, which only the compiler needs. See
docs/compiled.md.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    T = TypeVar("T")

    def mypyc_attr(**_attributes: bool) -> Callable[[T], T]:
        """Return a decorator that has no effect."""
        return lambda decorated: decorated


COMPILED_LIBRARY = "ottla__mypyc"
"""Name of the library with the code of all compiled modules. A pure wheel does not contain it."""


def installed_form() -> str:
    """Return "compiled" or "interpreted": the form of Ottla that is installed."""
    return "interpreted" if find_spec(COMPILED_LIBRARY) is None else "compiled"
