"""The last release as a tree of files, built from git, and nodes that run it."""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.cli.cluster.cluster_file import ClusterPlan
from ottla.tools.release import parse_releases

ROOT = Path(__file__).parents[3]

FORMAT = """
import sys
from pathlib import Path
import ottla.model
from ottla.cli.cluster.cluster_file import make_plan
from ottla.cli.cluster.cluster_format import format_plan
assert all(one.startswith(sys.argv[2]) for one in ottla.model.__path__), ottla.model.__path__
directory = Path(sys.argv[1])
format_plan(make_plan(directory, host="127.0.0.1", port=None, controllers=None, brokers=None))
"""


class LastRelease(NamedTuple):
    """The release that RELEASES names last."""

    version: str
    tree: Path
    environment: dict[str, str]
    """Environment in which Python imports the release."""

    def format(self, plan: ClusterPlan) -> None:
        """Format the directories of a plan as this release does."""
        plan.write()
        subprocess.run(
            [sys.executable, "-c", FORMAT, str(plan.directory), str(self.tree)],
            env=self.environment,
            check=True,
        )


def unpack_last_release(directory: Path) -> LastRelease:
    """Write the files of the last release into a directory.

    Skips the test if the repository lacks the release's commit, as a shallow clone does.
    """
    last = parse_releases((ROOT / "RELEASES").read_text("utf-8"))[-1]
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", last.commit], capture_output=True, check=False
    )
    if packed.returncode != 0:
        pytest.skip(
            f"LOUD: commit {last.commit} of release {last.version} is not here (git fetch "
            "--unshallow); the upgrade from it was NOT tested"
        )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(directory, filter="data")
    folders = [str(one) for one in sorted(directory.iterdir()) if (one / "ottla").is_dir()]
    # Paths of PYTHONPATH precede those of the installed package, which is this version.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    return LastRelease(last.version, directory, environment)
