"""What the codec asks of a message whose reader and writer are compiled ahead.

A wheel that is compiled has a module in `wire/native/` for each message that pyproject.toml names:
`codec_native` writes it when the wheel is built.  It reads and writes what is usual and raises
one of `UNUSUAL` at everything else, right or wrong: the codec then begins again with the functions
that it makes at first use, and only their answers and errors count.  So this module decides
nothing, and an interpreted install works without it.
"""

from typing import Any

from ottla.wire.codec_types import Chunk


class UnusualError(Exception):
    """What is read or written is left to the codec's other functions."""


UNUSUAL = (UnusualError, IndexError, ValueError, OverflowError, TypeError, AttributeError)
"""What a reader raises past the end of a message or at text that is no UTF-8, and a writer at a
number that is too large or a field of another type.  Any other error is a fault of ours."""


class NativeCodec:
    """Reads and writes one message in all its versions."""

    def decode(
        self, version: int, data: memoryview, at: int, elements_bytes_max: int
    ) -> tuple[Any, int]:
        """Read a message that begins at `at`, and say where it ends.  Raises one of UNUSUAL."""
        raise NotImplementedError

    def encode(
        self, message: Any, version: int, head_bytes: int, correlation_id: int
    ) -> list[Chunk]:
        """Write a message as pieces.

        With `head_bytes` it becomes an answer: in front of it stand the length of the frame, the
        correlation id, and a zero where these are nine bytes.  Raises one of UNUSUAL.
        """
        raise NotImplementedError


ABSENT = NativeCodec()
"""Stands for the codec of a message that has none."""
