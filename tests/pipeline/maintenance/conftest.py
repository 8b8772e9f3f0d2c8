"""Tables of small commits, written as an export writes them, without a cluster."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipeline.export.table_columns import table_schema
from ottla.pipeline.export.table_position import (
    ExportProgress,
    LogBounds,
    first_position,
    pending_ranges,
)

ROWS = 10
SCHEMA = table_schema(pa.string(), None)

Append = Callable[..., None]


def rows_of(begin: int, end: int) -> pa.RecordBatch:
    """Return rows of partition 0 with offsets from `begin` to `end`."""
    count = end - begin
    columns = {
        "key": [None] * count,
        "value": [b"%d" % at for at in range(begin, end)],
        "headers": [None] * count,
        "topic": ["orders"] * count,
        "partition": [0] * count,
        "offset": list(range(begin, end)),
        "timestamp": list(range(begin, end)),
        "timestamp_type": [0] * count,
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA
    )


@pytest.fixture
def append() -> Append:
    """A function that adds rows to an open table, a file each commit."""

    def body(table: Any, *, commits: int = 1, rows: int = ROWS) -> None:
        for _ in range(commits):
            table.prepare(SCHEMA)
            begin = 0 if table.position is None else table.position.next_offsets[0]
            bounds = LogBounds(topic="orders", topic_id="id", starts={0: 0}, ends={0: begin + rows})
            progress = ExportProgress(table.position or first_position(bounds))
            progress.begin(pending_ranges(progress.committed, bounds))
            progress.end()
            file = table.open_file(SCHEMA, compression="zstd")
            file.add(rows_of(begin, begin + rows))
            number = progress.committed.commit_number + 1
            table.commit(file, progress.position(f"commit-{number}"))

    return body


@pytest.fixture
def offsets_of() -> Callable[[pa.Table], list[int]]:
    """A function that returns the offsets of all rows, in order."""

    def body(found: pa.Table) -> list[int]:
        values = [int(one) for one in found.column("value").to_pylist()]
        assert values == found.column("offset").to_pylist()
        return sorted(values)

    return body
