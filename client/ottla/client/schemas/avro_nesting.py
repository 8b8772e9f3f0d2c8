"""Limit of the nesting of Avro values. Pure.

fastavro decodes nested values by recursion in C, without a limit. If a schema contains itself, a
record of 10 KB can overflow the stack and end the process. If a schema does not contain itself, its
values are nested no deeper than the schema, and need no check.
"""

from typing import Any

from ottla.client.registry.registry_errors import ValueMismatchError

NESTING_MAX = 500
"""Maximum depth to which values may be nested. The stack of a thread overflows at a depth between
1,000 and 10,000."""

_FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINT_BYTES_MAX = 10


class NestingCheck:
    """Check of the nesting depth of payloads. All payloads have one schema, which fastavro has
    parsed."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = {}
        self.is_needed = self._is_recursive(schema, frozenset())
        """True if the schema contains itself, so that a payload can be nested to any depth."""

    def check(self, payload: bytes) -> None:
        """Raise ValueMismatchError if a payload is nested deeper than NESTING_MAX. A malformed
        payload is ignored, because the decoder reports it."""
        if self.is_needed:
            try:
                _Walk(self._named, payload).walk(self._schema)
            except IndexError:
                return  # the payload ends within a value

    def _is_recursive(self, schema: Any, outer: frozenset[str]) -> bool:
        if isinstance(schema, list):
            return self._is_any_recursive(schema, outer)
        if isinstance(schema, str):
            return schema in outer
        kind = schema["type"]
        match kind:
            case "record" | "error":
                name = schema["name"]
                self._named[name] = schema
                inner = outer | {name}
                return self._is_any_recursive([one["type"] for one in schema["fields"]], inner)
            case "array":
                return self._is_recursive(schema["items"], outer)
            case "map":
                return self._is_recursive(schema["values"], outer)
            case "enum" | "fixed":
                self._named[schema["name"]] = schema
                return False
        return not isinstance(kind, str) and self._is_recursive(kind, outer)

    def _is_any_recursive(self, schemas: list[Any], outer: frozenset[str]) -> bool:
        # All of them are visited, because each may define a name.
        found = [self._is_recursive(one, outer) for one in schemas]
        return any(found)


class _Walk:
    """Iterative traversal of one payload, with an explicit stack instead of recursion."""

    def __init__(self, named: dict[str, Any], payload: bytes) -> None:
        self._named = named
        self._payload = payload
        self._at = 0
        self._pending: list[tuple[Any, int, int | None]] = []
        """Schemas of the values to skip, with their depths. For an array or a map, the third item
        is the number of entries that remain in its block."""

    def walk(self, schema: Any) -> None:
        """Skip a value. Raises IndexError if the payload ends before the value does."""
        self._pending.append((schema, 0, None))
        while self._pending:
            schema, depth, left = self._pending.pop()
            if depth > NESTING_MAX:
                raise ValueMismatchError(f"the value is nested more than {NESTING_MAX} times")
            if left is not None:
                self._entry(schema, depth, left)
            else:
                self._value(schema, depth)

    def _value(self, schema: Any, depth: int) -> None:
        if isinstance(schema, list):
            branch = self._varint()
            if 0 <= branch < len(schema):
                self._pending.append((schema[branch], depth + 1, None))
                return
            raise IndexError
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _FIXED_SIZES:
            self._skip(_FIXED_SIZES[kind])
        elif kind in ("int", "long", "enum"):
            self._varint()
        elif kind in ("bytes", "string"):
            self._skip(self._varint())
        elif kind == "fixed":
            self._skip(schema["size"])
        elif kind in ("record", "error"):
            fields = reversed(schema["fields"])
            self._pending.extend((one["type"], depth + 1, None) for one in fields)
        elif kind in ("array", "map"):
            self._pending.append((schema, depth, 0))
        else:
            inner = self._named[kind] if isinstance(kind, str) else kind
            self._pending.append((inner, depth, None))

    def _entry(self, schema: Any, depth: int, left: int) -> None:
        if left == 0:
            left = self._varint()
            if left < 0:
                left = -left
                self._varint()  # the size of the block in bytes
            if left == 0:
                return
        self._pending.append((schema, depth, left - 1))
        if schema["type"] == "map":
            self._skip(self._varint())
            self._pending.append((schema["values"], depth + 1, None))
        else:
            self._pending.append((schema["items"], depth + 1, None))

    def _skip(self, size: int) -> None:
        self._at += size
        if size < 0 or self._at > len(self._payload):
            raise IndexError

    def _varint(self) -> int:
        number = shift = 0
        for at in range(self._at, self._at + _VARINT_BYTES_MAX):
            byte = self._payload[at]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self._at = at + 1
                return (number >> 1) ^ -(number & 1)
        raise IndexError
