"""The two set-up commands of the README: the first one is typed on a bare machine.

Bare means: a fresh clone, an empty home, and no variable of the environment but PATH and HOME, and
two of pip's, which save some minute of CPU: it compiles no module, and finds the wheels that it has
built from sources before.  `.ci/run` types the second command on such a machine: it installs what
all other tests need, and runs their short form.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

FIRST_SCREEN_LINES = 25
ROOT = Path(__file__).parents[2]
SET_UP = "python3 -m venv .venv && "
START = SET_UP + ".venv/bin/pip install -e . && .venv/bin/ottla up --detach"
TEST = SET_UP + ".venv/bin/pip install -e '.[test]' && .venv/bin/pytest"

Terminal = Any


@pytest.fixture
def bare(
    tmp_path: Path,
    open_terminal: Callable[..., Terminal],
    can_separate: bool,
    is_free: Callable[[int], bool],
) -> Terminal:
    """A terminal in a fresh clone on a bare machine, where the port of the README is free."""
    clone, home = tmp_path / "ottla", tmp_path / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True, timeout=60)
    alone = ("env", "-i", f"PATH={os.environ['PATH']}", f"HOME={home}", *variables_of_pip())
    if can_separate:
        network = ("unshare", "--net", "--uts")
        return open_terminal(clone, prefix=(*network, *alone), set_up="ip link set lo up")
    if not is_free(9092):
        pytest.skip("port 9092 is taken, and a network of its own needs root")
    return open_terminal(clone, prefix=alone)


def variables_of_pip() -> list[str]:
    """Return the variables of pip that the bare machine has."""
    command = [sys.executable, "-m", "pip", "cache", "dir"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    places = [f"PIP_CACHE_DIR={found.stdout.strip()}"] if found.returncode == 0 else []
    # pip reads the value of an option that begins with `no-` as that of the option without it.
    return ["PIP_NO_COMPILE=0", *places]


def test_the_first_screen_has_two_set_up_commands(page: Any) -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if SET_UP in line] == [START, TEST]
    assert {START, TEST} <= set(lines[:FIRST_SCREEN_LINES])
    assert page("README.md").commands()[:2] == [START, TEST]


def test_the_first_command_starts_a_cluster_that_takes_records(bare: Terminal, page: Any) -> None:
    readme = page("README.md")
    ottla = ".venv/bin/ottla"
    try:
        printed = bare.step(readme, "", START)
        bare.type("! ls .venv/lib/python*/site-packages/trio/_tests/__pycache__ 2> /dev/null")
        assert "Any Kafka client works" in printed
        assert "Compiled, a small request takes half the CPU or less" in printed
        bare.type(f"{ottla} status")
        bare.type(f"{ottla} topic create greetings --partitions 3")
        bare.type(f"echo hello | {ottla} produce greetings")
        assert bare.type(f"{ottla} consume greetings -e 2> /dev/null").splitlines() == ["hello"]
        # Compaction works without numpy here; the other tests have it.
        bare.type("! .venv/bin/python -c 'import numpy' 2> /dev/null")
        bare.type(f"{ottla} topic create states --partitions 1 --config cleanup.policy=compact")
        bare.type(
            f"for number in $(seq 100); do echo key:$number; done | {ottla} produce states -K :"
        )
        bare.type(f"{ottla} cleaner run states")
        assert bare.type(f"{ottla} consume states -e 2> /dev/null").splitlines() == ["100"]
    finally:
        bare.type(f"! [ -e ottla-data ] || {ottla} down")
