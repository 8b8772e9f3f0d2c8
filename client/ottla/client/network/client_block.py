"""The `async with` block of a client, which `open_producer` and similar functions return.

The client exists only inside the block. Any other use of the returned object raises an error that
asks the user to write `async with`. A ResourceWarning is emitted if code calls `__aenter__`
directly and never calls `__aexit__`.
"""

import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

BOOTSTRAP_KEY = "bootstrap.servers"
P = ParamSpec("P")
T = TypeVar("T")


class ClientBlock(AbstractAsyncContextManager[T]):
    """The `async with` block of one client. The client is opened at the start of the block and
    closed at its end."""

    def __init__(self, function_name: str, manager: AbstractAsyncContextManager[T]) -> None:
        self._function_name = function_name
        self._manager = manager
        self._is_open = False

    async def __aenter__(self) -> T:
        client = await self._manager.__aenter__()
        self._is_open = True
        return client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._is_open = False
        return await self._manager.__aexit__(kind, error, traceback)

    def __del__(self) -> None:
        # Absent if the constructor failed.
        if getattr(self, "_is_open", False):
            warnings.warn(
                f"a client of {self._function_name} was never closed, so that buffered records may "
                f"be lost; {self._remedy()}, or close it by an AsyncExitStack",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def _remedy(self) -> str:
        name = self._function_name
        return f"write `async with {name}(…) as {name.removeprefix('open_')}:`"

    if not TYPE_CHECKING:  # type checkers report these uses themselves

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"{self._function_name}(…) has no {name!r} before its block; {self._remedy()}"
            )

        def _refuse(self, *_: object) -> NoReturn:
            raise TypeError(f"{self._function_name}(…) is used as a block; {self._remedy()}")

        __enter__ = __exit__ = __await__ = __aiter__ = __iter__ = _refuse


def client_block(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Wrap an async generator that yields a client. Returns a function that returns a
    `ClientBlock`.

    The wrapper is similar to `asynccontextmanager`."""
    opened = asynccontextmanager(function)

    @wraps(function)
    def open_block(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        try:
            return ClientBlock(function.__name__, opened(*args, **kwargs))
        except TypeError as error:
            raise TypeError(f"{error}{_remedy_for_setting(function, kwargs)}") from None

    return open_block


def _remedy_for_setting(function: Callable[..., object], given: Mapping[str, object]) -> str:
    """Return the end of an error message if a setting was passed as a keyword argument, as other
    clients allow. Returns an empty text if no setting was passed in this way."""
    known = inspect.signature(function).parameters
    unknown = next((name for name in given if name not in known), None)
    if unknown is None or "config" not in known:
        return ""
    config = f"{function.__name__.removeprefix('open_').capitalize()}Config"
    key = unknown.replace("_", ".")
    if key == BOOTSTRAP_KEY:
        return f"; give the addresses first: {function.__name__}('localhost:9092')"
    return f"; settings are given as config={config}.from_kafka({{{key!r}: …}})"


__all__ = ["ClientBlock", "client_block"]
