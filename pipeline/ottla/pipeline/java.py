"""Finds the Java that Spark is to run on: 17 or later, with the module that Spark needs.

Spark itself takes JAVA_HOME, else the `java` on PATH, and fails with a long trace when that is
too old or was trimmed.  Here every place where a Java usually lies is looked at, and the first that
fits is taken: one that the user named before one that happens to be there.  What a Java is stands
in its `release` file, so that looking costs no process; it is asked itself only where that lacks.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import NamedTuple

from ottla.model.errors import ConfigError

VERSION_MIN = 17
"""The oldest that Spark 4 runs on."""
VERSIONS_FIRST = (17, 21)
"""What Spark 4 is tested with: taken before later ones where several lie about."""
VECTOR_MODULE = "jdk.incubator.vector"
"""Spark's own start script demands it of the JVM; runtimes made smaller by jlink leave it out."""
DIRECTORIES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdk/*",
)
"""Where packages put a Java, as patterns: Debian, Red Hat, containers, macOS, SDKMAN."""
ANSWER_SECONDS_MAX = 20.0
"""A java that says nothing of itself for so long counts as none."""


class Java(NamedTuple):
    """One Java on this machine."""

    home: str
    """What JAVA_HOME is to be: the directory of bin/java."""
    version: int
    """17 of 17.0.15; 8 of 1.8.0_402."""
    version_text: str
    has_vector: bool
    """Whether it has VECTOR_MODULE."""
    found_by: str
    """JAVA_HOME, PATH, or the directory it was found in."""

    @property
    def problem(self) -> str:
        """Return why Spark cannot run on it; nothing when it can."""
        if self.version < VERSION_MIN:
            return f"is Java {self.version}, and Spark needs {VERSION_MIN}"
        if not self.has_vector:
            return f"is a trimmed Java {self.version} without the module {VECTOR_MODULE}"
        return ""


def find_java(
    environ: Mapping[str, str] | None = None, directories: Sequence[str] = DIRECTORIES
) -> Java:
    """Return the Java that Spark is to run on; ConfigError with the cure when there is none."""
    found = list(javas(os.environ if environ is None else environ, directories))
    fit = [java for java in found if not java.problem]
    if not fit:
        raise ConfigError("JAVA_HOME", none_fits(found))
    return fit[0]


def none_fits(found: Sequence[Java]) -> str:
    """Return why none of the Javas of a machine does, and what to do."""
    cure = (
        f"install a full Java {VERSION_MIN} (such as Debian's openjdk-{VERSION_MIN}-jdk-headless), "
        "or set JAVA_HOME to one"
    )
    if not found:
        return f"no Java was found here, and Spark needs Java {VERSION_MIN}; {cure}"
    unfit = "; ".join(f"{java.home} {java.problem}" for java in found)
    return f"{unfit}; {cure}"


def javas(environ: Mapping[str, str], directories: Sequence[str] = DIRECTORIES) -> Iterator[Java]:
    """Yield every Java of this machine once: the user's own choice first, then the likeliest."""
    seen: set[str] = set()
    for home, found_by in _named(environ):
        java = look_at(home, found_by)
        if java is not None and java.home not in seen:
            seen.add(java.home)
            yield java
    lying_about = []
    for pattern in directories:
        for home in sorted(glob(os.path.expanduser(pattern))):
            java = look_at(home, str(Path(home).parent))
            if java is not None and java.home not in seen:
                seen.add(java.home)
                lying_about.append(java)
    yield from sorted(lying_about, key=_likeliness)


def look_at(home: str, found_by: str) -> Java | None:
    """Return what lies at a directory; None when that is no Java."""
    directory = os.path.realpath(home)
    program = os.path.join(directory, "bin", "java")
    if not os.access(program, os.X_OK):
        return None
    try:
        told = told_by_release(Path(directory, "release").read_text(errors="replace"))
    except OSError:
        told = None
    version_text, modules = told or _told_by_itself(program)
    version = feature_version(version_text)
    if version is None:
        return None
    return Java(directory, version, version_text, VECTOR_MODULE in modules, found_by)


def told_by_release(text: str) -> tuple[str, frozenset[str]] | None:
    """Return version and modules of a `release` file; None when it does not tell both."""
    fields = dict(re.findall(r'^(\w+)="([^"]*)"', text, re.MULTILINE))
    if "JAVA_VERSION" not in fields:
        return None
    version = feature_version(fields["JAVA_VERSION"])
    if "MODULES" not in fields and (version is None or version >= VERSION_MIN):
        return None
    return fields["JAVA_VERSION"], frozenset(fields.get("MODULES", "").split())


def feature_version(text: str) -> int | None:
    """Return 17 of 17.0.15 or 17-ea, 8 of 1.8.0_402; None of what is no version."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match[1]) if match else None


def _named(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what the user's environment names, in Spark's own order."""
    if environ.get("JAVA_HOME"):
        yield environ["JAVA_HOME"], "JAVA_HOME"
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    if program:
        yield str(Path(os.path.realpath(program)).parents[1]), "PATH"


def _likeliness(java: Java) -> tuple[int, int]:
    if java.version in VERSIONS_FIRST:
        return VERSIONS_FIRST.index(java.version), 0
    return len(VERSIONS_FIRST), java.version


def _told_by_itself(program: str) -> tuple[str, frozenset[str]]:
    """Return version and modules as a java prints them; empty when it does not run."""
    version = re.search(r'version "([^"]*)"', _printed(program, "-version"))
    modules = _printed(program, "--list-modules").split()
    return version[1] if version else "", frozenset(name.partition("@")[0] for name in modules)


def _printed(program: str, option: str) -> str:
    try:
        done = subprocess.run(
            [program, option], capture_output=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace")
