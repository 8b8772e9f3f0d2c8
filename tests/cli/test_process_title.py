"""The arguments of a process that `ps` shows."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path
from ottla.cli.process_title import show_as
show_as(["ottla", "broker", sys.argv[1]], ["ottla", "broker", "broker-1.properties"])
print(Path("/proc/self/cmdline").read_text().replace(chr(0), " "), end="")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads and writes /proc")
@pytest.mark.parametrize(
    ("length", "shown"),
    [(20, f"ottla broker {'a' * 20}"), (1_000, "ottla broker broker-1.properties")],
)
def test_arguments_that_do_not_fit_are_replaced_by_shorter_ones(length: int, shown: str) -> None:
    program = PROGRAM.replace("sys.argv[1]", f"{'a'!r} * {length}")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip() == shown
