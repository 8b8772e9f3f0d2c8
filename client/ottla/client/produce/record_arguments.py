"""Validation of a single record that an application passes to a producer.

Pure. The producer calls these functions only for records with headers, or with keys or values other
than bytes. All other records need no additional CPU time.
"""

from collections.abc import Sequence
from typing import Any

from ottla.client.network.arguments import check_text, shown, wrong_type
from ottla.wire.batch_builder import EncodedHeaders, Headers

SERIALIZE = "or send by a SerializingProducer"


def bytes_or_none(name: str, value: Any) -> bytes | None:
    """Return a key or value as bytes, or None if `value` is None. Raises TypeError if the value is
    not bytes-like."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    encoded = f"{name}.encode()" if isinstance(value, str) else f"str({name}).encode()"
    raise TypeError(
        f"{name} is {shown(value)}; it must be bytes or None: encode it ({encoded}), {SERIALIZE}"
    )


def checked_headers(headers: Any) -> Headers | EncodedHeaders:
    """Return the headers of a record.  Raises TypeError if they are not pairs of str and bytes."""
    if type(headers) is bytes:
        return headers
    if not isinstance(headers, Sequence) or isinstance(headers, str):
        cure = ": list(headers.items())" if hasattr(headers, "items") else ""
        raise wrong_type("headers", headers, f"a list of (name, bytes) pairs{cure}")
    for position, pair in enumerate(headers):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise wrong_type(f"headers[{position}]", pair, "a (name, bytes) pair")
        if not isinstance(pair[0], str):
            raise wrong_type(f"the name in headers[{position}]", pair[0], "a str")
        if pair[1] is not None and type(pair[1]) is not bytes:
            raise wrong_type(f"the value in headers[{position}]", pair[1], "bytes or None")
    return headers


def check_place(topic: Any, partition: Any, timestamp_ms: Any) -> None:
    """Raise TypeError or ValueError if the topic, partition or timestamp of a record is invalid."""
    check_text("topic", topic)
    if not topic:
        raise ValueError("topic is empty")
    for name, number in (("partition", partition), ("timestamp_ms", timestamp_ms)):
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool):
            raise wrong_type(name, number, "an int or None")
        if number < 0:
            raise ValueError(f"{name} is {number}; it must be at least 0")
