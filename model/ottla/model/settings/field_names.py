"""Suggestion of the right field name for an unknown keyword argument of a config class.

Programs often write a setting as Kafka's key with underscores, as other Python clients do
(`batch_size`), although the field has another name (`batch_bytes`).
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ottla.model.settings.declare import definitions
from ottla.model.settings.misspelt import meant_key

T = TypeVar("T")
CONSTRUCTOR = "__init__"


def suggests_fields(config: type[T]) -> type[T]:
    """Class decorator that improves the constructor of a config class. Returns the class.

    If the constructor receives an unknown argument, its TypeError suggests the field that was
    probably meant.
    """
    construct: Callable[..., None] = getattr(config, CONSTRUCTOR)

    @wraps(construct)
    def checked(self: object, *positional: Any, **given: Any) -> None:
        try:
            construct(self, *positional, **given)
        except TypeError:
            unknown = next((name for name in given if not hasattr(config, name)), None)
            if unknown is None:
                raise
            cure = _meant(config, unknown)
            raise TypeError(f"{config.__name__} has no setting {unknown!r}{cure}") from None

    setattr(config, CONSTRUCTOR, checked)
    return config


def _meant(config: type, unknown: str) -> str:
    """Return the last part of an error message: a suggestion of the field that was probably meant,
    and the field's key."""
    known = definitions(config)
    fields = {one.field_name: key for key, one in known.items()}
    key = unknown.replace("_", ".")
    if key == "bootstrap.servers":
        return "; addresses are the first argument of open_producer, open_consumer and open_admin"
    if key not in known:
        field = meant_key(unknown, fields)
        key = fields[field] if field else meant_key(key, known) or ""
    if not key:
        return ""
    return f"; is {known[key].field_name} meant, Kafka's {key}?"
