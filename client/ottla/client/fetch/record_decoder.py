"""Whether a consumer's records are found by numpy, many at a time, or scanned one by one.

Pure.  Arrays cost a tenth for each record, but numpy must be installed, its import takes as long as
many thousand records, and each use as long as some dozens.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

from ottla.client.fetch.record_batch import RecordColumns, RecordOrigin
from ottla.wire.records import Body

ARRAY_ROWS_MIN = 48
"""Records together that pay for the calls of numpy; fewer are scanned."""
ARRAY_ROWS_MAX = 16_384
"""Records found together.  More leave the processor's cache, hold the loop longer, and take memory
(about 100 bytes each) of which a producer chooses the size."""
ROWS_BEFORE_IMPORT = 20_000
"""Records scanned by a consumer before it imports numpy: as long as the import takes."""


class RecordDecoder:
    """Finds the fields of records; one for a consumer."""

    __slots__ = ("_array_rows_min", "_has_numpy", "_rows_before_import")

    def __init__(
        self, rows_before_import: int | None = None, array_rows_min: int | None = None
    ) -> None:
        self._array_rows_min = ARRAY_ROWS_MIN if array_rows_min is None else array_rows_min
        if rows_before_import is None:
            rows_before_import = 0 if "numpy" in sys.modules else ROWS_BEFORE_IMPORT
        self._rows_before_import = rows_before_import
        self._has_numpy: bool | None = None
        """None until it is looked for."""

    def expect_many(self) -> None:
        """Import numpy with the first records that are worth it: the application asks for many."""
        self._rows_before_import = 0

    def read(
        self, origin: RecordOrigin, bodies: Sequence[Body], first_offset: int
    ) -> RecordColumns | None:
        """Return the records from an offset on; None if they are to be scanned."""
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
