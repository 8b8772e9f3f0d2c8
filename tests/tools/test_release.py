"""The parts of a release: notes, bill of materials, checksums, the file RELEASES."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ottla.model.version import VERSION as OWN_VERSION
from ottla.tools.release import (
    ReleaseError,
    bill_of_materials,
    check_version,
    notes_of,
    numbers_of,
    parse_releases,
    sums_of,
)

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## Unreleased

## 0.2.0 (2026-11-28)

### Added

- A thing.

## 0.1.0 (2026-11-22)

- All.
"""
VERSION = "0.4.0"
PROJECT = f'[project]\nversion = "{VERSION}"\n'
OWN = f"## {VERSION} (2026-11-28)\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_the_notes_are_the_section_of_the_version() -> None:
    assert notes_of(CHANGELOG, "0.2.0") == "### Added\n\n- A thing.\n"
    assert notes_of(CHANGELOG, "0.1.0") == "- All.\n"
    with pytest.raises(ReleaseError, match=r"has no section '## 0\.3\.0 \(YYYY-MM-DD\)'"):
        notes_of(CHANGELOG, "0.3.0")
    with pytest.raises(ReleaseError, match="write '## Unreleased"):
        notes_of(CHANGELOG, "Unreleased")


def test_releases_are_parsed_and_ascend() -> None:
    text = f"# A comment.\n\n0.9.0  2026-11-22  {COMMIT}\n0.10.0  2026-11-28  {COMMIT}\n"
    assert [one.version for one in parse_releases(text)] == ["0.9.0", "0.10.0"]
    assert parse_releases(text)[0] == ("0.9.0", "2026-11-22", COMMIT)
    with pytest.raises(ReleaseError, match="line 2: versions must ascend"):
        parse_releases(f"0.2.0 2026-11-22 {COMMIT}\n0.2.0 2026-11-22 {COMMIT}\n")
    with pytest.raises(ReleaseError, match="line 1: write VERSION DATE COMMIT"):
        parse_releases("0.2.0 2026-11-22 0123abcd\n")


@pytest.mark.parametrize(
    ("project", "changelog", "releases", "sentence"),
    [
        ('[project]\nversion = "9.9.9"\n', OWN, "", "pyproject.toml has version 9.9.9"),
        (PROJECT, "## Unreleased\n", "", "has no section"),
        (PROJECT, f"## {VERSION}\n", "", f"write '## {VERSION} "),
        (PROJECT, OWN, f"{VERSION} 2026-11-28 {COMMIT}", f"{VERSION} was released as {COMMIT}"),
    ],
)
def test_a_tree_that_contradicts_itself_is_not_released(
    project: str, changelog: str, releases: str, sentence: str
) -> None:
    check_version(PROJECT, OWN, "", own_version=VERSION)
    with pytest.raises(ReleaseError) as refused:
        check_version(project, changelog, releases, own_version=VERSION)
    assert sentence in str(refused.value)


def test_a_development_version_is_not_released() -> None:
    project = '[project]\nversion = "0.5.0.dev0"\n'
    with pytest.raises(ReleaseError, match=r"0\.5\.0\.dev0 is a development version"):
        check_version(project, "## 0.5.0.dev0 (2026-11-28)\n", "", own_version="0.5.0.dev0")


def package(name: str, version: str, **metadata: Any) -> dict[str, Any]:
    hashes = {"sha256": name.ljust(64, "0")}
    return {
        "metadata": {"name": name, "version": version, **metadata},
        "download_info": {"archive_info": {"hashes": hashes}},
    }


REPORT = {
    "install": [
        package(
            "ottla",
            "0.2.0",
            license_expression="Apache-2.0",
            requires_dist=["Trio >= 0.30", "lz4 >= 4", 'numpy >= 2; extra == "batches"'],
        ),
        package(
            "trio",
            "0.31",
            summary="Async",
            classifier=["License :: OSI Approved :: MIT License", "Topic :: System"],
            requires_dist=['cffi>=1.14; os_name == "nt"', "sniffio>=1.3"],
        ),
        package("sniffio", "1.3", license="MIT OR Apache-2.0"),
        package("lz4", "4.4", license="Copyright (c) ...\nAll rights reserved."),
        package("numpy", "2.0"),
    ]
}


def test_the_bill_of_materials_has_every_installed_package_and_what_it_needs() -> None:
    made = bill_of_materials(REPORT, name="ottla", made_at="2026-11-28T09:00:00Z")
    assert made == bill_of_materials(REPORT, name="ottla", made_at="2026-11-28T09:00:00Z")
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["serialNumber"].startswith("urn:uuid:")
    own = made["metadata"]["component"]
    assert (own["type"], own["purl"]) == ("application", "pkg:pypi/ottla@0.2.0")
    assert own["licenses"] == [{"expression": "Apache-2.0"}]
    found = {one["name"]: one for one in made["components"]}
    assert list(found) == ["lz4", "numpy", "sniffio", "trio"]
    assert found["trio"]["licenses"] == [{"license": {"name": "MIT License"}}]
    assert found["sniffio"]["licenses"] == [{"license": {"name": "MIT OR Apache-2.0"}}]
    assert "licenses" not in found["lz4"]
    assert found["trio"]["hashes"] == [{"alg": "SHA-256", "content": "trio".ljust(64, "0")}]
    needs = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    assert needs["pkg:pypi/ottla@0.2.0"] == ["pkg:pypi/lz4@4.4", "pkg:pypi/trio@0.31"]
    assert needs["pkg:pypi/trio@0.31"] == ["pkg:pypi/sniffio@1.3"]
    with pytest.raises(ReleaseError, match="does not have kafka"):
        bill_of_materials(REPORT, name="kafka", made_at="")


def test_checksums_have_the_form_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"abc")
    first, second = sums_of(tmp_path.iterdir()).splitlines()
    assert first == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a"
    assert second == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b"


def test_the_files_of_this_tree_agree_about_releases() -> None:
    releases = parse_releases((ROOT / "RELEASES").read_text("utf-8"))
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'\nversion = "{OWN_VERSION}"\n' in project
    assert releases
    assert numbers_of(OWN_VERSION.removesuffix(".dev0")) >= numbers_of(releases[-1].version)


def test_each_release_is_a_commit_that_has_its_version() -> None:
    for release in parse_releases((ROOT / "RELEASES").read_text("utf-8")):
        command = ["git", "show", f"{release.commit}:pyproject.toml"]
        try:
            shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("there is no git, or this checkout lacks the history")
        assert f'\nversion = "{release.version}"\n' in shown.stdout
