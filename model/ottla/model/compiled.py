"""Form in which Ottla is installed, compiled or interpreted, and class attributes for the compiler
mypyc.

`mypyc_attr` has no effect on an interpreted class. mypyc reads it, and removes it from compiled
code. With this function, the package mypy_extensions is needed only by the compiler. See
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
        """Return a decorator that leaves a class unchanged. The keyword arguments are hints for the
        compiler mypyc."""
        return lambda decorated: decorated


COMPILED_LIBRARY = "ottla__mypyc"
"""Name of the shared library that contains the code of all compiled modules. A pure Python wheel
does not contain it."""


def installed_form() -> str:
    """Return "compiled" or "interpreted", the form in which Ottla is installed."""
    return "interpreted" if find_spec(COMPILED_LIBRARY) is None else "compiled"
