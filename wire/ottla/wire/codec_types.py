"""What the generated message classes are made of: their parent, their defaults, their types.

A message is a plain slotted object; one class serves all versions of it.  `Records` never copies:
decoded records are a memoryview of the frame, and what is encoded may be anything with a length
(a `FileSlice` of the log), which leaves as a chunk of its own.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias
from uuid import UUID

from ottla.model.compiled import mypyc_attr

ZERO_UUID = UUID(int=0)
"""Kafka's "no id"."""

EMPTY: list[Any] = []
"""Stands for "a new empty list" as the default of an array; never put into a message."""


class RecordsSource(Protocol):
    """Record bytes that lie elsewhere, such as a slice of a log file."""

    def __len__(self) -> int: ...


Records: TypeAlias = bytes | bytearray | memoryview | RecordsSource
Chunk: TypeAlias = bytes | bytearray | memoryview | RecordsSource
"""One piece of what goes to a socket: bytes of ours, or records by reference."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Struct:
    """The parent of every generated class: equal when all fields are equal, shown with them."""

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
    """A whole message: the class knows its API, its versions and where its schema stands."""

    __slots__ = ()

    API_KEY: ClassVar[int]
    """Kafka's number of the API; -1 for headers and for what stands inside records."""
    VERSIONS: ClassVar[range]
    """The versions that exist, as a range: `message.VERSIONS[-1]` is the latest."""
    FLEXIBLE_FROM: ClassVar[int | None]
    """The first version with compact lengths and tagged fields (KIP-482); None when none has."""
    SCHEMA: ClassVar[str]
    """The file in `schemas/` that declares it."""
