"""Frozen value classes, equivalent to `dataclass(frozen=True, slots=True)`, but defined in a
quarter of the time.

`dataclass` compiles six functions per class, which takes about 0.5 ms. With the 140 value classes
of a node, this was a quarter of the node's import time. `frozen` compiles only `__init__`; all
other methods are shared by all classes and read the fields through a common getter. `fields`,
`replace`, `asdict`, pickling and `match` work as with `dataclass`, and so do `repr=False`,
`compare=False` and `init=False` of a field.

Compiled modules use `dataclass`, because the compiler supports it, and so do classes with an order.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    cls: type[T] | None = None, /, *, kw_only: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a value class: frozen, with slots, compared and hashed by its fields. Returns a
    decorator if no class is given, as in `@frozen(kw_only=True)`."""
    if cls is None:
        return lambda cls: _made(cls, is_kw_only=kw_only)
    return _made(cls, is_kw_only=kw_only)


def _made(cls: type[T], *, is_kw_only: bool) -> type[T]:
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=is_kw_only)(cls)
    own = cls.__dict__
    all_fields = fields(made)  # type: ignore[arg-type]
    names = [one.name for one in all_fields]
    functions: dict[str, Any] = {
        "__init__": _init(made, all_fields),
        "__repr__": _repr([one.name for one in all_fields if one.repr]),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _getstate(names),
        "__setstate__": _setstate(names),
    }
    values_of = _getter([one.name for one in all_fields if one.compare])
    functions["__eq__"] = _eq(values_of)
    functions["__hash__"] = _hash(values_of)
    for name, function in functions.items():
        # A class that defines `__eq__` has None as `__hash__`.
        if own.get(name) is None:
            setattr(made, name, function)
    return made


def _init(cls: type, all_fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Compile and return `__init__`, which sets each field by the descriptor of its slot."""
    given: dict[str, Any] = {"MISSING": MISSING}
    positional, by_name = ["self"], list[str]()
    lines: list[str] = []
    for one in all_fields:
        name = one.name
        assert one.hash is None
        given[f"_set_{name}"] = getattr(cls, name).__set__
        source, parameter = name, name
        if one.default is not MISSING:
            given[f"_default_{name}"] = one.default
            parameter = f"{name}=_default_{name}"
        elif one.default_factory is not MISSING:
            given[f"_make_{name}"] = one.default_factory
            parameter = f"{name}=MISSING"
            source = f"_make_{name}() if {name} is MISSING else {name}"
        if one.init:
            (by_name if one.kw_only else positional).append(parameter)
        elif parameter is name:
            continue  # `__post_init__` sets it
        lines.append(f"    _set_{name}(self, {source})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    star = ["*", *by_name] if by_name else []
    text = f"def __init__({', '.join([*positional, *star])}):\n" + "\n".join(lines or ["    pass"])
    exec(text, given)
    made: Callable[..., None] = given.pop("__init__")
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _getter(names: list[str]) -> Callable[[Any], Any]:
    """Return a function that reads the given fields of an object. The function returns a tuple, or
    the value itself if there is a single field."""
    return attrgetter(*names) if names else lambda _: ()


def _eq(values_of: Callable[[Any], Any]) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return values_of(self) == values_of(other)

    return equal


def _hash(values_of: Callable[[Any], Any]) -> Callable[[Any], int]:
    def hash_of(self: Any) -> int:
        return hash(values_of(self))

    return hash_of


def _repr(names: list[str]) -> Callable[[Any], str]:
    def shown(self: Any) -> str:
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({parts})"

    return shown


def _getstate(names: list[str]) -> Callable[[Any], list[Any]]:
    def state(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    return state


def _setstate(names: list[str]) -> Callable[[Any, list[Any]], None]:
    def restore(self: Any, state: list[Any]) -> None:
        for name, one in zip(names, state, strict=True):
            object.__setattr__(self, name, one)

    return restore


def _refuse_to_set(self: object, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
