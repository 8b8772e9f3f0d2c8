"""`ottla export` as a process that is killed at random points: the table has each record once."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import LogRow, TopicBench

POLL_S = 0.01
END_S = 120
VALUE_BYTES = 8_192
"""Size of a value: a fetch has about a hundred of them, and each fetch is a commit."""
BATCH = 600
FILES_MAX = 4
"""A run is killed while it writes one of its first files."""


class KilledExport:
    """An export into one table, by a process at a time."""

    def __init__(self, path: Path, form: str, topic: str, bootstrap: str) -> None:
        self._path = path
        self._form = form
        self._catalog = {
            "type": "sql",
            "uri": f"sqlite:///{path}/catalog.db",
            "warehouse": f"file://{path}/warehouse",
        }
        target = {
            "directory": f"{path}/orders",
            "delta": f"delta:{path}/orders",
            "iceberg": "iceberg:local.orders",
        }[form]
        words = ["export", topic, "--to", target, "--bootstrap", bootstrap, "--file-size", "1"]
        if form == "iceberg":
            for key, value in self._catalog.items():
                words += ["--catalog-option", f"{key}={value}"]
        self._command = [sys.executable, "-m", "ottla.cli", *words]

    def run(self) -> None:
        """Export up to the present end."""
        subprocess.run(self._command, check=True, timeout=END_S, stdout=subprocess.DEVNULL)

    def kill_at(self, file_count: int, delay_s: float) -> bool:
        """Kill a run a moment after it has begun some files.  Returns False if it has ended."""
        wanted = self._file_count() + file_count
        deadline = time.monotonic() + END_S
        with subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as child:
            while child.poll() is None and self._file_count() < wanted:
                assert time.monotonic() < deadline
                time.sleep(POLL_S)
            time.sleep(delay_s)
            child.kill()
            _, complaint = child.communicate(timeout=END_S)
        assert child.returncode in (0, -signal.SIGKILL), complaint
        return child.returncode != 0

    def rows(self) -> list[tuple[int, int, bytes | None]]:
        """Return all rows, as readers of the table see them."""
        found = self._read()
        if found is None:
            return []
        columns = (found.column(name).to_pylist() for name in ("partition", "offset", "value"))
        return sorted(zip(*columns, strict=True))

    def _read(self) -> pa.Table | None:
        if self._form == "iceberg":
            try:
                table = load_catalog("local", **self._catalog).load_table("default.orders")
            except NoSuchTableError:
                return None
            return table.scan().to_arrow()
        files = [str(one) for one in (self._path / "orders").glob("*.parquet")]
        if self._form == "delta":
            is_table = deltalake.DeltaTable.is_deltatable(f"{self._path}/orders")
            log = deltalake.DeltaTable(f"{self._path}/orders") if is_table else None
            files = [] if log is None else log.file_uris()
        return pa.concat_tables(map(parquet.read_table, files)) if files else None

    def _file_count(self) -> int:
        """Return the number of data files, also unfinished ones."""
        return sum(".parquet" in name for _, _, names in os.walk(self._path) for name in names)


def check_kills(bench: "TopicBench", path: Path, form: str, kills: int) -> None:
    """Kill an export at random points; compare rows of table and log after each kill."""
    topic = bench.new_topic(2)
    rows: list[LogRow] = []
    export = KilledExport(path, form, topic, bench.bootstrap)
    chance = random.Random(f"{form}-{kills}")
    killed = 0
    while killed < kills:
        if len(export.rows()) == len(rows):
            filler = os.urandom(VALUE_BYTES)
            more = [b"%d " % (len(rows) + number) + filler for number in range(BATCH)]
            rows = sorted([*rows, *bench.produce(topic, more)])
        killed += export.kill_at(chance.randint(1, FILES_MAX), chance.random() / 20)
        found = export.rows()
        assert len({row[:2] for row in found}) == len(found), "doubled rows"
        assert set(found) <= set(rows)
    export.run()
    assert export.rows() == rows


@pytest.mark.parametrize(("form", "kills"), [("directory", 3), ("iceberg", 2)])
def test_an_export_that_is_killed_loses_and_doubles_nothing(
    bench: "TopicBench", tmp_path: Path, form: str, kills: int
) -> None:
    check_kills(bench, tmp_path, form, kills)


@pytest.mark.parametrize("form", ["directory", "iceberg", "delta"])
def test_twenty_kills_lose_and_double_nothing(
    bench: "TopicBench", tmp_path: Path, form: str
) -> None:
    check_kills(bench, tmp_path, form, 20)
