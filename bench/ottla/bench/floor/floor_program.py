"""Builds the program `floor.c`, and runs it for one kind of request."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla.model.errors import ErrorCode, OttlaError, RefusedError

SOURCE = Path(__file__).with_name("floor.c")
COMPILERS = ("cc", "gcc", "clang")
BUILD_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class FloorAnswer(NamedTuple):
    """Response of the program `floor.c` to every request. Also describes the records, which the
    program writes to a file or sends from a file."""

    kind: str
    """Kind of the requests: "produce" or "fetch"."""
    frame: bytes
    """Bytes of the response, including its length prefix."""
    records_at: int
    """Position of the records in bytes: in each request for "produce", in the response for
    "fetch"."""
    records: bytes


class RunningFloor(NamedTuple):
    """Address and process id of the program while it runs."""

    address: tuple[str, int]
    pid: int


def build_floor(directory: Path) -> Path:
    """Compile the program into a directory, and return the path of the executable file.

    Raises RefusedError if the machine has no C compiler, and OttlaError if the compiler reports an
    error.
    """
    compiler = _compiler()
    if compiler is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a C compiler is missing: install gcc")
    program = directory / "floor"
    command = [compiler, "-O2", "-o", str(program), str(SOURCE)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    if built.returncode:
        raise OttlaError(f"{compiler} cannot compile {SOURCE}: {built.stderr.strip()}")
    return program


def has_compiler() -> bool:
    """Return whether the machine has a C compiler, which is needed to build the program."""
    return _compiler() is not None


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)


@contextmanager
def open_floor(program: Path, directory: Path, answer: FloorAnswer) -> Iterator[RunningFloor]:
    """Run the program until the end of the block, with its files in a new directory. Yields its
    address and process id."""
    directory.mkdir()
    data, frame = directory / "data", directory / "answer"
    data.write_bytes(b"" if answer.kind == "produce" else answer.records)
    frame.write_bytes(answer.frame)
    sizes = [str(answer.records_at), str(len(answer.records))]
    process = subprocess.Popen(
        [str(program), answer.kind, str(data), str(frame), *sizes], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        if not port:
            raise OttlaError(f"{program} did not start")
        yield RunningFloor(("127.0.0.1", int(port)), process.pid)
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
