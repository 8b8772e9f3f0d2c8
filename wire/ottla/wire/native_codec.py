"""Interface to the messages whose reader and writer are compiled ahead of time.

A compiled wheel has a module in `wire/native/` for each message that pyproject.toml names;
`codec_native` writes it when the wheel is built. The module processes usual messages and raises one
of `UNUSUAL` for all others, valid or not. The codec then starts again with the functions that it
compiles at first use, and only their results and errors count. The module therefore never decides
whether a message is valid, and an interpreted installation works without it.
"""

from typing import Any

from ottla.wire.codec_types import Chunk


class UnusualError(Exception):
    """Error of a native codec for a message or value that the codec's generic functions must
    process instead."""


UNUSUAL = (UnusualError, IndexError, ValueError, OverflowError, TypeError, AttributeError)
"""Errors with which a native codec leaves a message to the generic functions. A reader raises them
at the end of the data and for text that is not UTF-8. A writer raises them for a number out of
range and for a field of another type. Any other error is a bug."""


class NativeCodec:
    """Reader and writer of one message in all its versions, compiled ahead of time."""

    def decode(
        self, version: int, data: memoryview, at: int, elements_bytes_max: int
    ) -> tuple[Any, int]:
        """Decode and return the message that begins at position `at` of `data`, and the position of
        its end. Raises one of UNUSUAL."""
        raise NotImplementedError

    def encode(
        self, message: Any, version: int, head_bytes: int, correlation_id: int
    ) -> list[Chunk]:
        """Return a message encoded as chunks.

        With `head_bytes`, the message becomes a response: it is preceded by the frame length, the
        correlation id and, if `head_bytes` is nine, a zero byte. Raises one of UNUSUAL.
        """
        raise NotImplementedError


ABSENT = NativeCodec()
"""Placeholder for the native codec of a message that was not compiled."""
