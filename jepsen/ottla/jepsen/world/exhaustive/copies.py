"""Copies of a core with all that it stands on, and what makes two of them the same state.

Works on any object with slots: what is frozen (messages, settings, identities) is shared, what is
mutable is copied.  In the key of a state, instants count from the owner's own now, so that a state
reached later is the same state; what has no bearing on what may follow is left out.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any
from uuid import UUID

PAST_MS = 10_000
"""Instants longer ago are all alike: every timeout is shorter."""

_ATOMS = (int, str, bytes, float, bool, type(None), UUID, Enum, tuple, frozenset)


_SLOTS: dict[type[object], tuple[str, ...]] = {}
_FROZEN: dict[type[object], bool] = {}


def slots_of(kind: type[object]) -> tuple[str, ...]:
    """Return the names of all slots of a class, its parents' included."""
    if kind not in _SLOTS:
        _SLOTS[kind] = _find_slots(kind)
    return _SLOTS[kind]


def _find_slots(kind: type[object]) -> tuple[str, ...]:
    names: list[str] = []
    for each in reversed(kind.__mro__):
        slots = each.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return tuple(name for name in names if name not in ("__weakref__", "__dict__"))


def _is_frozen(kind: type[object]) -> bool:
    if kind not in _FROZEN:
        parameters = getattr(kind, "__dataclass_params__", None)
        is_frozen = parameters is not None and bool(parameters.frozen)
        _FROZEN[kind] = is_frozen or issubclass(kind, _ATOMS)
    return _FROZEN[kind]


def copy_of(thing: Any, copies: dict[int, Any]) -> Any:
    """Return a copy; `copies` holds, by id, what was copied already or is to be shared."""
    kind: type[object] = type(thing)
    if _is_frozen(kind):
        return thing
    known = copies.get(id(thing))
    if known is not None:
        return known
    if kind is list:
        copied: Any = [copy_of(each, copies) for each in thing]
    elif kind is dict:
        copied = {key: copy_of(value, copies) for key, value in thing.items()}
    elif kind is set:
        copied = set(thing)
    else:
        assert slots_of(kind), f"cannot copy {kind.__name__}"
        copied = object.__new__(kind)
        copies[id(thing)] = copied
        for name in slots_of(kind):
            setattr(copied, name, copy_of(getattr(thing, name), copies))
        return copied
    copies[id(thing)] = copied
    return copied


def key_of(thing: Any, now_ms: int, special: Callable[[Any], Any], skipped: frozenset[str]) -> Any:
    """Return what makes a state: a value that is equal for equal states.

    `special` returns the key of a thing that needs one of its own, else NotImplemented.
    """
    found = special(thing)
    if found is not NotImplemented:
        return found
    kind: type[object] = type(thing)
    if _is_frozen(kind):
        return thing
    if kind is list:
        return tuple(key_of(each, now_ms, special, skipped) for each in thing)
    if kind is dict:
        pairs = ((key, key_of(value, now_ms, special, skipped)) for key, value in thing.items())
        return frozenset(pairs)
    if kind is set:
        return frozenset(thing)
    parts: list[Any] = [kind.__name__]
    for name in slots_of(kind):
        if name in skipped:
            continue
        value = getattr(thing, name)
        if name.endswith("_ms") and isinstance(value, int):
            parts.append(max(-PAST_MS, value - now_ms))
        else:
            parts.append(key_of(value, now_ms, special, skipped))
    return tuple(parts)
