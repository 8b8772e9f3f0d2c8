"""Imports of a test cluster: each module delays the first test of every run."""

import subprocess
import sys

SCRIPT = """
import sys

sys.modules["cryptography"] = None  # as where the extra `secure` is not installed
import ottla.testing
from ottla.model.errors import ConfigError

with ottla.testing.cluster() as cluster:
    print(*sys.modules)
try:
    with ottla.testing.cluster(is_secure=True):
        pass
except ConfigError as error:
    print(error)
"""
NEEDLESS = {
    "cramjam",
    "cryptography.x509",
    "email",
    "multiprocessing",
    "numpy",
    "opentelemetry.sdk",
    "ottla.cli",
    "ottla.jepsen",
    "ottla.pipeline",
    "pytest",
    "trio.testing",
    "unittest",
}


def test_a_cluster_imports_only_what_it_needs_and_no_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    modules, refusal = done.stdout.splitlines()

    assert set(modules.split()) & NEEDLESS == set()
    assert refusal.startswith("is_secure: needs cryptography, which is not installed; install")
