"""Decides whether the records of a fetch response are located at once with numpy or scanned one by
one.

Pure. With numpy, a record takes a tenth of the CPU time of a scan. However, numpy must be
installed, importing it takes as long as scanning many thousand records, and each use of numpy takes
as long as scanning some dozens.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from ottla.client.fetch.record_batch import RecordColumns, RecordOrigin
from ottla.wire.records import Body

ARRAY_ROWS_MIN = 48
"""Minimum number of records for which calling numpy pays off. Fewer records are scanned."""
ARRAY_ROWS_MAX = 16_384
"""Maximum number of records that are located together. More records exceed the processor's cache,
block the event loop longer, and use memory (about 100 bytes per record) in an amount that a
producer controls.
"""
ROWS_BEFORE_IMPORT = 20_000
"""Number of records that a consumer scans before it imports numpy. The import takes as long as
scanning that many records."""


class RecordDecoder:
    """Decoder that locates the fields of records.  Each consumer has one decoder."""

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
        """Import numpy at the next suitable batch of records, since the application requests many
        records at a time."""
        self._rows_before_import = 0

    def read(
        self, origin: RecordOrigin, bodies: Sequence[Body], first_offset: int
    ) -> RecordColumns | None:
        """Return the columns of the records from `first_offset` on, or None if the records must be
        scanned one by one."""
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
