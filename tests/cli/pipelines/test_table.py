"""The command line of `ottla table`."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.cli.main import run
from ottla.pipeline.export.parquet_directory import open_directory
from ottla.pipeline.export.table_columns import table_schema
from ottla.pipeline.export.table_position import TablePosition

SCHEMA = table_schema(pa.string(), None)


def write_table(path: Path, commits: int) -> None:
    """Write a table of one row a commit."""
    with open_directory(path) as table:
        for number in range(commits):
            row = {"value": b"v", "topic": "orders", "partition": 0, "offset": number}
            file = table.open_file(SCHEMA, compression="zstd")
            file.add(pa.RecordBatch.from_pylist([row], schema=SCHEMA))
            position = TablePosition(
                topic="orders",
                topic_id="id",
                next_offsets={0: number + 1},
                commit_number=number + 1,
            )
            table.commit(file, position)


def test_a_rehearsal_and_a_maintenance_report_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, 4)
    words = ["table", "maintain", str(tmp_path)]
    assert run([*words, "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("3 small files into 1, 3 rows, ")
    assert printed.err == "nothing was changed (--dry-run)\n"
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    assert run([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["merged_count"], found["made_count"], found["row_count"]) == (3, 1, 3)
    assert found["byte_count_after"] > 0
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    assert run(words) == 0
    assert capsys.readouterr().out.startswith("0 small files into 0, 0 rows, ")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "nowhere: has no table of an export"),
        (["nowhere", "--keep", "59m"], "--keep: is 59m; files of a running export"),
        (["nowhere", "--keep", "soon"], "--keep: is 'soon'"),
        (["nowhere", "--file-size", "big"], "--file-size: is 'big'"),
        (["nowhere", "--catalog-option", "uri=x"], "needs TABLE iceberg:CATALOG.TABLE"),
        (["iceberg:local"], "TABLE: is 'iceberg:local'; it must be iceberg:CATALOG.TABLE"),
        (["delta:nowhere"], "delta:nowhere: does not exist"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["table", "maintain", *words]) == 1
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.count("\n") == 1
