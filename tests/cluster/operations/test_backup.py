"""docs/backup-and-restore.md, replayed with real processes."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[3] / "docs" / "backup-and-restore.md"
DEADLINE_S = 120


class Shell:
    """A user's shell in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir()
        command = directory / "bin" / "ottla"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli "$@"\n')
        command.chmod(0o755)
        self.env = {**os.environ, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}

    def run(self, text: str, given: str = "") -> str:
        done = subprocess.run(
            ["sh", "-ec", text],
            cwd=self.directory,
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self) -> "subprocess.Popen[bytes]":
        """Start a cluster; return when it is healthy."""
        process = subprocess.Popen(
            ["ottla", "up", "--port", "0", "--dir", "ottla-data"],
            cwd=self.directory,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + DEADLINE_S
        while subprocess.run(
            ["ottla", "status", "--dir", "ottla-data"],
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            check=False,
        ).returncode:
            assert time.monotonic() < until
            assert process.poll() is None
            time.sleep(0.5)
        return process


def test_what_a_backup_holds_comes_back(tmp_path: Path) -> None:
    backup, restore = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shell = Shell(tmp_path)
    first = shell.up()
    try:
        shell.run("ottla topic create orders --dir ottla-data")
        shell.run("ottla produce orders --dir ottla-data", given="one\ntwo\n")
        shell.run(backup)
    finally:
        first.terminate()
        first.wait(DEADLINE_S)

    damaged = shell.up()
    try:
        shell.run("ottla topic delete orders --yes --dir ottla-data")
        shell.run("ottla down --dir ottla-data")
    finally:
        damaged.terminate()
        damaged.wait(DEADLINE_S)
    shell.run(restore)

    restored = shell.up()
    try:
        assert shell.run("ottla consume orders -e --dir ottla-data").split() == ["one", "two"]
    finally:
        restored.terminate()
        restored.wait(DEADLINE_S)
