"""Base classes, defaults and types of the generated message classes.

A message is a plain slotted object; one class serves all versions of a message. `Records` are never
copied: decoded records are a memoryview of the frame. Records to encode may be any object with a
length (such as a `FileSlice` of the log), which becomes a chunk of its own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias
from uuid import UUID

from ottla.model.compiled import mypyc_attr

ZERO_UUID = UUID(int=0)
"""The UUID whose bits are all zero, which means null in Kafka's protocol."""

EMPTY: list[Any] = []
"""Placeholder for the default of an array field. A message never gets this list, but a new empty
list."""


class RecordsSource(Protocol):
    """Record batches whose bytes are stored elsewhere, such as a slice of a log file."""

    def __len__(self) -> int: ...


Records: TypeAlias = bytes | bytearray | memoryview | RecordsSource
Chunk: TypeAlias = bytes | bytearray | memoryview | RecordsSource
"""One piece of an encoded message for a socket: encoded bytes, or records by reference."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Struct:
    """Base class of all generated message classes and of the structs in them, with equality and a
    representation by fields."""

    __slots__: ClassVar[Sequence[str]] = ()
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, so it has no hash

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{self.__class__.__name__}({fields})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Message(Struct):
    """Base of the classes of complete messages. Each class has its API key, its versions and the
    name of its schema file."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    """Kafka's API key of a request or response. -1 for headers and for data inside records."""
    VERSIONS: ClassVar[range]
    """The existing versions of the message; `VERSIONS[-1]` is the latest."""
    FLEXIBLE_FROM: ClassVar[int | None]
    """The first version of the message with compact lengths and tagged fields (KIP-482), or None if
    no version has them."""
    SCHEMA: ClassVar[str]
    """Name of the file in `schemas/` that declares the message."""
