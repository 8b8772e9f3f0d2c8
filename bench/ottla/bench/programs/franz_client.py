"""Builds the program `franz.go`, and runs it as a load. Go fetches the client's modules."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from ottla.bench.programs.program_runs import output_of
from ottla.model.errors import ErrorCode, RefusedError

SOURCE = Path(__file__).with_name("franz.go")
MODULE = "github.com/twmb/franz-go/pkg/kgo@v1.22.3"
BUILD_TIMEOUT_S = 300.0


class FranzRun(NamedTuple):
    """Result of a run of the program: number of records, and the seconds that they took."""

    record_count: int
    seconds: float


def has_go() -> bool:
    """Return whether the machine has Go, which is needed to build the program."""
    return shutil.which("go") is not None


def build_franz(directory: Path) -> Path:
    """Build the program in a directory, and return the path of the executable file.

    Raises RefusedError if the machine has no Go, or the client's modules cannot be fetched.
    """
    go = shutil.which("go")
    if go is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Go is missing: install it")
    shutil.copy(SOURCE, directory / "main.go")
    for arguments in (["mod", "init", "load"], ["get", MODULE], ["build", "-o", "franz"]):
        built = subprocess.run(
            [go, *arguments],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if built.returncode:
            reason = f"go {arguments[0]} failed: {built.stderr.strip()[-300:]}"
            raise RefusedError(ErrorCode.INVALID_REQUEST, reason)
    return directory / "franz"


def run_franz(
    program: Path, what: str, bootstrap: str, topic: str, *, count: int, record_bytes: int
) -> FranzRun:
    """Write or read `count` records with the program. `what` is "produce" or "consume".

    Raises RefusedError with the program's message if it fails or does not end in time.
    """
    command = [str(program), what, bootstrap, topic, str(count), str(record_bytes)]
    found = json.loads(output_of("franz-go", command))
    return FranzRun(found["count"], found["seconds"])
