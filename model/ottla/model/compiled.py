"""The compiled form: which form is installed, and what a module says to the compiler.

`mypyc_attr` does nothing to an interpreted class; mypyc reads it and leaves it out.  The package
mypy_extensions, which it comes from, is needed by the compiler alone.  See docs/compiled.md.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    T = TypeVar("T")

    def mypyc_attr(**_attributes: bool) -> Callable[[T], T]:
        """Return a decorator that changes nothing."""
        return lambda decorated: decorated


COMPILED_LIBRARY = "ottla__mypyc"
"""The library that holds the code of all compiled modules; a pure wheel has none."""


def installed_form() -> str:
    """Return "compiled" or "interpreted"."""
    return "interpreted" if find_spec(COMPILED_LIBRARY) is None else "compiled"
