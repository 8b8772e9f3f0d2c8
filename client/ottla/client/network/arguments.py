"""Validation of the arguments that an application passes to a client. Errors name the argument.

`checked` reads the annotations of a function once and compares the arguments of every call with
them. It checks types, and rejects texts that UTF-8 cannot encode. It does not check facts that only
a broker has, such as whether a topic exists. It accepts any value for an argument whose annotation
it does not support.

Producers do not use `checked` for records, because `producer.send` has a cheaper check of its own.
"""

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import wraps
from itertools import islice
from typing import Any, TypeVar, cast

from ottla.model.unicode_text import are_encodable, is_encodable

F = TypeVar("F", bound=Callable[..., Any])

Check = Callable[[str, Any], None]
"""Function that checks one argument. It is called with the argument's name and value, and raises
TypeError if the value is not allowed."""

CHECKED_ITEM_COUNT_MAX = 1_000
"""Maximum number of items of a list or mapping that are checked. Checking more items would take as
long as the call that is checked."""
SHOWN_CHARS_MAX = 60


def shown(value: object) -> str:
    """Return a value as text for an error message: its representation, shortened if it is long, and
    its type."""
    text = repr(value)
    if len(text) > SHOWN_CHARS_MAX:
        text = f"{text[: SHOWN_CHARS_MAX - 1]}…"
    return f"{text} ({type(value).__name__})"


def wrong_type(name: str, value: object, wanted: str) -> TypeError:
    """Return the TypeError for an argument of the wrong type."""
    return TypeError(f"{name} is {shown(value)}; it must be {wanted}")


def checked(function: F) -> F:
    """Return a function that checks its arguments at each call and then calls `function`.

    A checked coroutine function raises TypeError when it is called, not when it is awaited.
    """
    known: tuple[list[str], str, dict[str, Check]] | None = None

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal known
        if known is None:  # built at the first call: most functions are never called
            known = (*_positional_names(function), _checks_of(function))
        names, rest, checks = known
        for name, value in zip(names, args, strict=False):
            if name in checks and name != rest:
                checks[name](name, value)
        if len(args) > len(names) and not rest:
            raise _too_many(function, names, len(args))
        if rest in checks:
            for position, value in enumerate(args[names.index(rest) :]):
                checks[rest](f"{rest}[{position}]", value)
        for name, value in kwargs.items():
            if name in checks:
                checks[name](name, value)
        return function(*args, **kwargs)

    return cast("F", call)


def _too_many(function: Callable[..., Any], names: list[str], given_count: int) -> TypeError:
    """Return the TypeError for positional arguments that the function accepts only as keyword
    arguments."""
    parameters = inspect.signature(function).parameters.values()
    by_name = ", ".join(f"{one.name}=…" for one in parameters if one.kind is one.KEYWORD_ONLY)
    # A method has `self` as its first parameter.
    count = given_count - (names[:1] == ["self"])
    wanted = ", ".join(name for name in names if name != "self") or "nothing"
    cure = f"; give the others by name: {by_name}" if by_name else ""
    return TypeError(
        f"{function.__name__}() takes {wanted} by position, not {count} arguments{cure}"
    )


def _positional_names(function: Callable[..., Any]) -> tuple[list[str], str]:
    """Return the names of the positional parameters, and the name of the `*args` parameter, or ""
    if the function has no such parameter."""
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]
    return names, next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")


def check_all_calls(owner: type) -> None:
    """Apply `checked` to all public methods that a class itself defines."""
    for name, found in list(vars(owner).items()):
        if inspect.isfunction(found) and not name.startswith("_"):
            setattr(owner, name, checked(found))


def _checks_of(function: Callable[..., Any]) -> dict[str, Check]:
    hints = typing.get_type_hints(function)
    hints.pop("return", None)
    found = {name: _check_of(hint) for name, hint in hints.items()}
    return {name: check for name, check in found.items() if check is not None}


def _check_of(hint: Any) -> Check | None:
    """Return the check for a type annotation, or None if any value is allowed."""
    hint = getattr(hint, "__supertype__", hint)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _check_of_union(parts)
    if origin is not None and issubclass(origin, collections.abc.Mapping):
        return _check_of_mapping(*parts)
    if origin is collections.abc.Callable:
        return _check_by(callable, "a function")
    if origin is tuple or not isinstance(origin or hint, type):
        return None
    if origin is not None:
        if issubclass(origin, collections.abc.Iterable):
            return _check_of_items(_check_of(parts[0]), parts[0])
        return None
    return _check_of_class(hint)


def check_text(name: str, value: Any) -> None:
    """Raise TypeError if a value is not a str, or ValueError if UTF-8 cannot encode it."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "a str")
    if not is_encodable(value):
        raise _not_encodable(name, value)


def _not_encodable(name: str, value: Any) -> ValueError:
    return ValueError(f"{name} is {shown(value)}, which UTF-8 cannot encode")


def _check_of_class(hint: type) -> Check | None:
    if hint is str:
        return check_text
    if hint in WORDS:
        return _check_by(*WORDS[hint])
    if getattr(hint, "_is_protocol", False) or hint is object:
        return None
    check_kind = _check_by(lambda value: isinstance(value, hint), _noun_of(hint))

    def check(name: str, value: Any) -> None:
        check_kind(name, value)
        if not are_encodable(value):
            raise _not_encodable(name, value)

    return check


def _check_by(fits: Callable[[Any], bool], wanted: str) -> Check:
    def check(name: str, value: Any) -> None:
        if not fits(value):
            raise wrong_type(name, value, wanted)

    return check


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


WORDS: dict[type, tuple[Callable[[Any], bool], str]] = {
    int: (_is_integer, "an int"),
    float: (_is_number, "a number"),
    bool: (lambda value: isinstance(value, bool), "True or False"),
    str: (lambda value: isinstance(value, str), "a str"),
    bytes: (lambda value: isinstance(value, bytes | bytearray | memoryview), "bytes"),
    types.NoneType: (lambda value: value is None, "None"),
}
"""Check function and error-message name of each basic type, by type."""


def _noun_of(hint: Any) -> str:
    hint = getattr(hint, "__supertype__", hint)
    if hint in WORDS:
        return WORDS[hint][1]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_noun_of(part) for part in typing.get_args(hint))
    name = str(getattr(hint, "__name__", hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"one of {', '.join(f'{name}.{one.name}' for one in hint)}"
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return f"a {name}({', '.join(hint._fields)})"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _check_of_union(parts: tuple[Any, ...]) -> Check | None:
    checks = [_check_of(part) for part in parts]
    if None in checks:
        return None
    others = [part for part in parts if part is not types.NoneType]

    def check(name: str, value: Any) -> None:
        problem: TypeError | None = None
        for part, one in zip(parts, checks, strict=True):
            try:
                assert one is not None
                one(name, value)
                return
            except TypeError as error:
                # If only one alternative besides None exists, its own message has the most detail.
                if problem is None or part is not types.NoneType:
                    problem = error
        if len(others) > 1:
            raise wrong_type(name, value, " or ".join(map(_noun_of, parts)))
        assert problem is not None
        raise problem

    return check


def _check_of_items(item: Check | None, hint: Any) -> Check:
    def check(name: str, value: Any) -> None:
        if isinstance(value, str | bytes):
            raise TypeError(f"{name} is the text {shown(value)}; give a list: [{value!r}]")
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            raise TypeError(f"{name} is one {shown(value)}; give a list: [{value!r}]")
        if not isinstance(value, Iterable):
            raise wrong_type(name, value, f"a list of {_noun_of(hint)}")
        # Other iterables are not checked: that would exhaust an iterator.
        if item is not None and isinstance(value, collections.abc.Collection):
            for position, one in enumerate(islice(value, CHECKED_ITEM_COUNT_MAX)):
                item(f"{name}[{position}]", one)

    return check


def _check_of_mapping(of_key: Any, of_value: Any) -> Check:
    key_check, value_check = _check_of(of_key), _check_of(of_value)

    def check(name: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise wrong_type(name, value, f"a dict with {_noun_of(of_key)} as each key")
        for key, one in islice(value.items(), CHECKED_ITEM_COUNT_MAX):
            if key_check is not None:
                key_check(f"a key of {name}", key)
            if value_check is not None:
                value_check(f"{name}[{key!r}]", one)

    return check
