"""The client on systems other than Linux, as far as Linux can show it."""

import os
import subprocess
import sys

import pytest

from ottla.model.tls.context_driver import _memory_file

PROGRAM = """
import subprocess, sys, tempfile, trio  # import these modules themselves, where there are any
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
import ottla.client
from ottla.client import aio
for name in ottla.client.__all__:
    getattr(ottla.client, name)
others = {name.split(".")[1] for name in sys.modules if name.startswith("ottla.")}
print(*sorted(others))
"""


def test_the_client_imports_no_module_that_windows_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) <= {"client", "model", "proto", "telemetry", "wire"}


def test_a_certificate_in_memory_is_read_from_a_private_file_where_there_is_no_memfd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with _memory_file("text") as path:
        assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0
        with open(path) as file:
            assert file.read() == "text"
    assert not os.path.exists(path)
