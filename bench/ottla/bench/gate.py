"""`make bench-gate`: CPU instructions of short code paths, compared with a committed table.

On shared cores, a change of 3 % is visible in instruction counts, but not in measured seconds. The
paths run in a process of their own under valgrind's callgrind. It counts only between a start mark
and a stop mark around each path.

The marks are valgrind's client requests: a fixed sequence of x86-64 instructions that has no effect
on a real processor.  A table is valid for one version of Python.  With another version, the
differences are shown, but the gate passes.
"""

import argparse
import ctypes
import gc
import json
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.model.compiled import installed_form

TABLE = Path(__file__).parents[2] / "gate.json"
HIGHEST_INCREASE = 0.05
WARM_UP_RUNS = 50
RUNS = 20
TIMEOUT_S = 600.0
OK, WORSE, MISSING = 0, 2, 4
COLUMNS = {"interpreted": "instructions", "compiled": "compiled"}
"""Name of the table's column for interpreted and for compiled code."""

ZERO, DUMP, START, STOP = 0x4354_0001, 0x4354_0000, 0x4354_0004, 0x4354_0005
"""Numbers of callgrind's client requests, which control its counters (valgrind/callgrind.h)."""
REQUEST = bytes.fromhex(
    "4889f8"  # mov rax, rdi: the request and its arguments
    "31d2"  # xor edx, edx: the result without valgrind
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 128 bits in total: the mark
    "4887db"  # xchg rbx, rbx
    "4889d0"  # mov rax, rdx
    "c3"  # ret
)
TOTALS = re.compile(rb"^totals: (\d+)", re.MULTILINE)


class PathComparison(NamedTuple):
    """Comparison of one code path: its number of CPU instructions now, and the number in the
    committed table."""

    path: str
    instructions: int
    before: int | None

    @property
    def increase(self) -> float | None:
        """Increase of a code path's instructions over the committed table, relative to the table's
        count. None if the table does not contain the path."""
        return None if not self.before else self.instructions / self.before - 1


def main(arguments: list[str] | None = None) -> int:
    """Count the CPU instructions of all code paths, compare them with the committed table, and
    print the result. Returns 2 if a path takes over 5 % more instructions than in the table."""
    parser = argparse.ArgumentParser(prog="ottla.bench.gate", description=__doc__)
    parser.add_argument("--write", action="store_true", help="make what is counted the table")
    parser.add_argument("--table", type=Path, default=TABLE, help="file of the table")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--count-into", type=Path, help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.count_into is not None:
        count_paths(parsed.count_into)
        return OK
    if shutil.which("valgrind") is None or platform.machine() != "x86_64":
        print("bench-gate: NOT RUN, nothing was compared; install valgrind (x86-64)")
        return MISSING
    counted = counts()
    path: Path = parsed.table
    table = json.loads(path.read_text()) if path.exists() else {}
    column = COLUMNS[installed_form()]
    found = compare(counted, table.get(column, {}))
    decides = table.get("python") == platform.python_version()
    if parsed.format == "json":
        print(json.dumps([each._asdict() for each in found]))
    else:
        print(as_text(found))
        if not decides:
            print(f"undecided: the table is of Python {table.get('python')}")
    if parsed.write:
        # The column of the other form of the code is kept only if both columns are of the same
        # Python version.
        kept = table if decides else {}
        written = {**kept, "python": platform.python_version(), column: dict(counted)}
        path.write_text(json.dumps(written, indent=2) + "\n")
        return OK
    return WORSE if decides and any(is_worse(each) for each in found) else OK


def compare(counted: Mapping[str, int], before: Mapping[str, int]) -> list[PathComparison]:
    """Return a comparison for each code path: its number of instructions, and its entry in the
    committed table."""
    return [PathComparison(path, count, before.get(path)) for path, count in counted.items()]


def is_worse(found: PathComparison) -> bool:
    """Return whether a code path takes more CPU instructions than its entry in the table plus the
    tolerance."""
    before = found.before
    return before is not None and found.instructions > before * (1 + HIGHEST_INCREASE)


def as_text(found: list[PathComparison]) -> str:
    """Return a text table of the comparisons of code paths."""
    lines = [f"{'PATH':18}{'INSTRUCTIONS':>14}{'TABLE':>14}{'DIFFERENCE':>12}"]
    for each in found:
        change = "new" if each.increase is None else f"{each.increase:+.1%}"
        mark = "  above 5 %" if is_worse(each) else ""
        before = "" if each.before is None else f"{each.before:,}"
        lines.append(f"{each.path:18}{each.instructions:>14,}{before:>14}{change:>12}{mark}")
    return "\n".join(lines)


def counts() -> dict[str, int]:
    """Return the number of CPU instructions executed by one run of each code path, by name."""
    with tempfile.TemporaryDirectory(prefix="ottla-gate-") as name:
        directory = Path(name)
        subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                "--instr-atstart=no",
                f"--callgrind-out-file={directory / 'counts'}",
                sys.executable,
                "-m",
                "ottla.bench.gate",
                "--count-into",
                name,
            ],
            env={**os.environ, "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
        )
        names: list[str] = json.loads((directory / "paths.json").read_text())
        return {
            path: _total(directory / f"counts.{number}") // RUNS
            for number, path in enumerate(names, start=1)
        }


def _total(path: Path) -> int:
    found = TOTALS.search(path.read_bytes())
    if found is None:
        raise ValueError(f"{path}: callgrind wrote no total")
    return int(found[1])


def count_paths(directory: Path) -> None:
    """Run every code path under valgrind. Callgrind writes one file for each path."""
    from ottla.bench.gate_paths import paths

    request = _client_request()
    found = paths()
    gc.collect()
    gc.freeze()
    gc.disable()
    for run in found.values():
        for _ in range(WARM_UP_RUNS):
            run()
    for run in found.values():
        request(ZERO)
        request(START)
        for _ in range(RUNS):
            run()
        request(STOP)
        request(DUMP)
    (directory / "paths.json").write_text(json.dumps(list(found)))


def _client_request() -> Callable[[int], object]:
    """Return a function that sends a client request without arguments to valgrind, which counts the
    instructions."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(REQUEST)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    call = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(address)
    arguments = (ctypes.c_size_t * 6)()

    def send(number: int) -> object:
        arguments[0] = number
        return call(ctypes.addressof(arguments)), memory

    return send


if __name__ == "__main__":
    sys.exit(main())
