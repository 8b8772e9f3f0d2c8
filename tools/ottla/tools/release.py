"""Files of a release in addition to its packages: notes, bill of materials, checksums.

`make release` calls `check` before it builds the packages, and `finish DIRECTORY` afterwards, which
writes:
- `NOTES.md`: the section of CHANGELOG.md about this version.
- `ottla-VERSION.cdx.json`: a bill of materials in CycloneDX 1.6. It lists the packages, with their
  hashes, that pip would install with the pure wheel on this machine.
- `SHA256SUMS`: checksums of all files, for `sha256sum --check`.

`RELEASES` names the commit of each release. The commit that sets a version cannot contain its own
hash, so the next commit adds the line.
"""

import hashlib
import json
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.model.version import VERSION

ROOT = Path(__file__).parents[3]
SUMS = "SHA256SUMS"
NOTES = "NOTES.md"
CHUNK_BYTES = 1 << 20
LICENSE_CHARS_MAX = 80
"""Maximum length of a license's name, in characters. Longer values are omitted, because some
packages put the whole text of their license into the field of its name."""

_LINE = re.compile(r"(\d+\.\d+\.\d+) +(\d{4}-\d\d-\d\d) +([0-9a-f]{40})")
_HEADING = re.compile(r"## (\S+)(?: \((\d{4}-\d\d-\d\d)\))?")
_RELEASED = re.compile(r"\d+\.\d+\.\d+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class ReleaseError(Exception):
    """The release must not be built; the message gives the reason."""


class Release(NamedTuple):
    """A line of `RELEASES`: version, date and commit of a release."""

    version: str
    date: str
    commit: str


def parse_releases(text: str) -> list[Release]:
    """Return the releases in a text of the file `RELEASES`, in order. Raises ReleaseError for an
    invalid line."""
    found: list[Release] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ReleaseError(f"RELEASES, line {number}: write VERSION DATE COMMIT, not {line!r}")
        found.append(Release(*match.groups()))
        if len(found) > 1 and numbers_of(found[-2].version) >= numbers_of(found[-1].version):
            raise ReleaseError(f"RELEASES, line {number}: versions must ascend")
    return found


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version such as 0.3.0, so that versions can be compared."""
    return tuple(map(int, version.split(".")))


def notes_of(changelog: str, version: str) -> str:
    """Return the section of the changelog about a version, without its heading.

    Raises ReleaseError if there is no such section, or if its heading has no date.
    """
    lines = changelog.splitlines()
    for start, line in enumerate(lines):
        match = _HEADING.fullmatch(line)
        if match is not None and match[1] == version:
            if match[2] is None:
                raise ReleaseError(f"CHANGELOG.md: write '## {version} (YYYY-MM-DD)'")
            rest = lines[start + 1 :]
            length = next((at for at, one in enumerate(rest) if one.startswith("## ")), len(rest))
            return "\n".join(rest[:length]).strip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section '## {version} (YYYY-MM-DD)'")


def check_version(
    project: str, changelog: str, releases: str, *, own_version: str = VERSION
) -> None:
    """Raise ReleaseError if the given files of the source tree disagree about the version to
    release, or if it is a development version. Each argument is the text of a file, except
    `own_version`, the version in `ottla.model.version`."""
    version = tomllib.loads(project)["project"]["version"]
    if version != own_version:
        raise ReleaseError(
            f"pyproject.toml has version {version}, ottla.model.version has {own_version}"
        )
    if _RELEASED.fullmatch(version) is None:
        raise ReleaseError(f"{version} is a development version; write the one to release, X.Y.Z")
    notes_of(changelog, version)
    for release in parse_releases(releases):
        if release.version == version:
            raise ReleaseError(f"{version} was released as {release.commit}; raise the version")


def bill_of_materials(report: Mapping[str, Any], *, name: str, made_at: str) -> dict[str, Any]:
    """Return the CycloneDX document for an installation that pip reported.

    `report` is the JSON that `pip install --report` writes, and `name` is the released package. Two
    calls with equal arguments return equal documents.
    """
    installed = {canonical(one["metadata"]["name"]): one for one in report["install"]}
    if name not in installed:
        raise ReleaseError(f"pip's report does not have {name}")
    components = {key: _component(key, one) for key, one in sorted(installed.items())}
    own = {**components.pop(name), "type": "application"}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": made_at, "component": own},
        "components": list(components.values()),
        "dependencies": [
            {
                "ref": _ref(key, installed[key]),
                "dependsOn": [_ref(other, installed[other]) for other in _needs(key, installed)],
            }
            for key in sorted(installed)
        ],
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return {**document, "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, digest).urn}


def canonical(name: str) -> str:
    """Return a package's name in the form that all spellings share (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _ref(key: str, item: Mapping[str, Any]) -> str:
    return f"pkg:pypi/{key}@{item['metadata']['version']}"


def _needs(key: str, installed: Mapping[str, Any]) -> list[str]:
    """Return the keys of the installed packages that a package needs. Packages that only its extras
    need are left out."""
    found: set[str] = set()
    for requirement in installed[key]["metadata"].get("requires_dist", ()):
        text, _, marker = requirement.partition(";")
        match = _NAME.match(text)
        if match is not None and not re.search(r"\bextra\b", marker):
            found.add(canonical(match[0]))
    return sorted(found & installed.keys())


def _component(key: str, item: Mapping[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": _ref(key, item),
        "name": key,
        "version": metadata["version"],
        "purl": _ref(key, item),
    }
    if metadata.get("summary"):
        found["description"] = metadata["summary"]
    hashes = item.get("download_info", {}).get("archive_info", {}).get("hashes", {})
    if "sha256" in hashes:
        found["hashes"] = [{"alg": "SHA-256", "content": hashes["sha256"]}]
    if metadata.get("license_expression"):
        found["licenses"] = [{"expression": metadata["license_expression"]}]
    else:
        prefix = "License :: OSI Approved :: "
        classifiers = [one for one in metadata.get("classifier", ()) if one.startswith(prefix)]
        names = [one.removeprefix(prefix) for one in classifiers]
        text = metadata.get("license") or ""
        if not names and 0 < len(text) <= LICENSE_CHARS_MAX and "\n" not in text:
            names = [text]
        if names:
            found["licenses"] = [{"license": {"name": one}} for one in names]
    return found


def sums_of(files: Iterable[Path]) -> str:
    """Return the SHA-256 checksums of files, in the format of `sha256sum`."""
    lines = []
    for path in sorted(files):
        digest = hashlib.sha256()
        with path.open("rb") as data:
            while part := data.read(CHUNK_BYTES):
                digest.update(part)
        lines.append(f"{digest.hexdigest()}  {path.name}\n")
    return "".join(lines)


# ---- commands


def check() -> None:
    """Raise ReleaseError if this source tree cannot be released, because versions differ or files
    have changed."""
    check_version(
        (ROOT / "pyproject.toml").read_text("utf-8"),
        (ROOT / "CHANGELOG.md").read_text("utf-8"),
        (ROOT / "RELEASES").read_text("utf-8"),
    )
    changed = _output("git", "status", "--porcelain", "--untracked-files=no")
    if changed:
        raise ReleaseError(f"commit these changes first:\n{changed}")


def finish(directory: Path) -> None:
    """Write the release notes, the bill of materials and the checksums into the directory that
    contains the packages."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    (directory / NOTES).write_text(f"# Ottla {VERSION}\n\n{notes_of(changelog, VERSION)}", "utf-8")
    (wheel,) = directory.glob(f"ottla-{VERSION}-py3-none-any.whl")
    options = ("--quiet", "--dry-run", "--ignore-installed", "--report", "-")
    report = json.loads(_output(sys.executable, "-m", "pip", "install", *options, str(wheel)))
    made_at = _output("git", "log", "-1", "--format=%cI").strip()
    document = bill_of_materials(report, name="ottla", made_at=made_at)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (directory / f"ottla-{VERSION}.cdx.json").write_text(text + "\n", "utf-8")
    files = [path for path in directory.iterdir() if path.is_file() and path.name != SUMS]
    (directory / SUMS).write_text(sums_of(files), "utf-8")


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main(words: Sequence[str]) -> int:
    """Run `check` or `finish DIRECTORY`, as given on the command line. Returns 1 if the release
    must not be built, else 0."""
    acts: dict[str, Callable[..., None]] = {"check": check, "finish": finish}
    try:
        acts[words[0]](*map(Path, words[1:]))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
