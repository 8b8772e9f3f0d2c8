"""The wheel and the source distribution: all that is needed is in them, and runs elsewhere."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution: OTTLA_DIST, where they are built."""
    if given := os.environ.get("OTTLA_DIST"):
        return Path(given)
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


HOLES = {"PyJWT": (2, 12)}
"""First versions without a known hole: PyJWT before 2.12 took unknown critical headers of tokens
(CVE-2026-32597)."""


def test_no_extra_allows_a_version_with_a_known_hole() -> None:
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    needed = [
        *PROJECT["project"]["dependencies"],
        *(one for rows in extras.values() for one in rows),
    ]
    for name, first in HOLES.items():
        bounds = [re.search(r">= ([\d.]+)", one) for one in needed if one.startswith(name)]
        assert len(bounds) > 1
        for bound in bounds:
            assert bound is not None
            assert tuple(map(int, bound[1].split("."))) >= first


def test_the_wheel_has_every_file_of_every_package(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        folder = ROOT / package
        own = {
            str(path.relative_to(folder.parent))
            for path in folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
        }
        assert own - packed == set(), package
    assert {"ottla/cli/py.typed", "ottla/cli/completions/ottla.bash"} <= packed
    assert any(name.startswith("ottla/wire/messages/") for name in packed)
    assert any(name.endswith("_pb2.py") for name in packed)


def test_the_readme_of_an_index_links_to_nothing_that_is_not_there(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
    description = metadata.get_payload()
    assert isinstance(description, str)

    assert "# Ottla" in description
    assert "docs/deploy.md" in description
    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", description) == []
    assert metadata.get_all("Project-URL") is None  # none is known, so none is invented


def test_twine_has_no_objection(built: Path) -> None:
    paths = map(str, built.iterdir())
    command = [sys.executable, "-m", "twine", "check", "--strict", *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_source_distribution_has_the_documents_that_the_readme_names(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    linked = re.findall(
        r"\]\(((?:docs/)?(?:reference/)?\w+\.md)\)", (ROOT / "README.md").read_text()
    )
    assert linked
    assert {*linked, "LICENSE", "pyproject.toml"} <= names


def test_an_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv/bin/python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = tmp_path / "venv/lib" / version / "site-packages"
    zipfile.ZipFile(wheel).extractall(place)
    code = "from ottla.cli.main import main; main(%r)"

    for words in (["version"], ["completion", "bash"], ["--help"]):
        done = subprocess.run(
            [python, "-c", code % words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
        if words == ["version"]:
            assert done.stdout.strip() == f"{PROJECT['project']['version']} (interpreted)"
