"""Choice between two ways of decoding the records of a fetch response: all together with numpy, or
one by one.

Pure. With numpy, a record needs a tenth of the CPU time. However, numpy must be installed. The
import of numpy takes as long as decoding many thousand records one by one, and each use as long as
decoding some dozens.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from ottla.client.fetch.record_batch import RecordColumns, RecordOrigin
from ottla.wire.records import Body

ARRAY_ROWS_MIN = 48
"""Minimum number of records for which numpy is used. Fewer records are decoded faster one by
one."""
ARRAY_ROWS_MAX = 16_384
"""Maximum number of records that numpy decodes together. More records would exceed the processor's
cache and block the event loop for longer. The limit also bounds memory (about 100 bytes per
record), because producers decide how many records a batch has."""
ROWS_BEFORE_IMPORT = 20_000
"""Number of records that a consumer decodes one by one before it imports numpy. The import takes as
long as decoding this number of records."""


class RecordDecoder:
    """Decoder of fetched records. Each consumer has one decoder."""

    __slots__ = ("_array_rows_min", "_has_numpy", "_rows_before_import")

    def __init__(
        self, rows_before_import: int | None = None, array_rows_min: int | None = None
    ) -> None:
        self._array_rows_min = ARRAY_ROWS_MIN if array_rows_min is None else array_rows_min
        if rows_before_import is None:
            rows_before_import = 0 if "numpy" in sys.modules else ROWS_BEFORE_IMPORT
        self._rows_before_import = rows_before_import
        self._has_numpy: bool | None = None
        """True if numpy can be imported.  None before the first attempt."""

    def expect_many(self) -> None:
        """Import numpy for the next suitable batch of records, because the application requests
        many records at a time."""
        self._rows_before_import = 0

    def read(
        self, origin: RecordOrigin, bodies: Sequence[Body], first_offset: int
    ) -> RecordColumns | None:
        """Decode the records from `first_offset` on with numpy. Returns None if the records must be
        decoded one by one."""
        row_count = sum(body.header.record_count for body in bodies)
        if not self._array_rows_min <= row_count <= ARRAY_ROWS_MAX:
            return None
        if self._rows_before_import > 0:
            self._rows_before_import -= row_count
            return None
        if self._has_numpy is None:
            self._has_numpy = find_spec("numpy") is not None
        if not self._has_numpy:
            return None
        from ottla.client.fetch.array_columns import in_one_buffer, read_columns

        found = in_one_buffer(bodies)
        if found is not None:
            return read_columns(origin, *found, first_offset)
        data = b"".join([memoryview(body.data)[body.start : body.end] for body in bodies])
        placed: list[Body] = []
        at = 0
        for body in bodies:
            placed.append(Body(body.header, data, at, at + body.size_bytes))
            at += body.size_bytes
        return read_columns(origin, data, placed, first_offset)
