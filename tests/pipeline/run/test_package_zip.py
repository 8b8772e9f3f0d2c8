"""Executors work with the zip alone."""

import os
import subprocess
import sys
from pathlib import Path

from ottla.pipeline.run.package_zip import make_package_zip, package_files

PROGRAM = """
import ottla.pipeline.read.read_options
from ottla.wire.codec import encode
from ottla.wire.messages.fetch_request import FetchRequest
assert encode(FetchRequest(), 4)
import pyspark_ottla
assert pyspark_ottla.DefaultSource.name() == "ottla"
print(*ottla.__path__)
"""


def test_a_process_that_has_nothing_of_ours_but_the_zip_works_from_it(tmp_path: Path) -> None:
    path = make_package_zip(tmp_path / "of-ours.zip")
    # Without `site`, an installed Ottla is not found, and what it is built on is.
    others = [place for place in map(Path, sys.path) if place.name.endswith("-packages")]
    others = [place for place in others if not (place / "ottla").exists()]
    where = os.pathsep.join(map(str, (path, *others)))
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": where},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == f"{path}/ottla"


def test_it_holds_what_the_pipeline_imports_and_no_servers() -> None:
    names = package_files()
    assert "ottla/pipeline/run/session.py" in names
    assert "ottla/wire/schemas/fetch.schema" in names
    assert not [name for name in names if "__pycache__" in name]
    assert not [name for name in names if name.startswith(("ottla/broker/", "ottla/cli/"))]
