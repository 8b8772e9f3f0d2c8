"""Finds a Java installation for Spark: version 17 or later, with the module that Spark requires.

Spark itself uses JAVA_HOME, or else the `java` on PATH, and fails with a long stack trace if that
Java is too old or lacks modules. This module checks every usual directory of Java installations and
selects the first suitable one. A Java installation that the user has chosen has priority. The
`release` file describes a Java without starting a process; the program is started only if the file
is missing.
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
"""Minimum version of Java that can run Spark 4."""
VERSIONS_FIRST = (17, 21)
"""Versions of Java with which Spark 4 is tested. They are preferred over later versions."""
VECTOR_MODULE = "jdk.incubator.vector"
"""Java module that Spark's own start script requires. It is missing in runtimes that jlink has
reduced."""
DIRECTORIES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdk/*",
)
"""Patterns of the usual directories of Java installations: Debian, Red Hat, containers, macOS,
SDKMAN."""
ANSWER_SECONDS_MAX = 20.0
"""Timeout in seconds of `java -version`. A program that takes longer is not used as a Java."""


class Java(NamedTuple):
    """A Java installation on this machine."""

    home: str
    """Value for JAVA_HOME: the parent directory of bin/java."""
    version: int
    """Feature version of the Java installation: 17 for 17.0.15, 8 for 1.8.0_402."""
    version_text: str
    has_vector: bool
    """True if the Java installation has the module `VECTOR_MODULE`."""
    found_by: str
    """Source of the installation's path: JAVA_HOME, PATH, or the directory in which the Java was
    found."""

    @property
    def problem(self) -> str:
        """Reason why Spark cannot run on this Java installation. Empty if the installation is
        suitable."""
        if self.version < VERSION_MIN:
            return f"is Java {self.version}, and Spark needs {VERSION_MIN}"
        if not self.has_vector:
            return f"is a trimmed Java {self.version} without the module {VECTOR_MODULE}"
        return ""


def find_java(
    environ: Mapping[str, str] | None = None, directories: Sequence[str] = DIRECTORIES
) -> Java:
    """Return the Java installation for Spark. Raises ConfigError with the remedy if no installation
    is suitable."""
    found = list(javas(os.environ if environ is None else environ, directories))
    fit = [java for java in found if not java.problem]
    if not fit:
        raise ConfigError("JAVA_HOME", none_fits(found))
    return fit[0]


def none_fits(found: Sequence[Java]) -> str:
    """Return a text with the reason why no Java installation of a machine is suitable for Spark,
    and the remedy."""
    cure = (
        f"install a full Java {VERSION_MIN} (such as Debian's openjdk-{VERSION_MIN}-jdk-headless), "
        "or set JAVA_HOME to one"
    )
    if not found:
        return f"no Java was found here, and Spark needs Java {VERSION_MIN}; {cure}"
    unfit = "; ".join(f"{java.home} {java.problem}" for java in found)
    return f"{unfit}; {cure}"


def javas(environ: Mapping[str, str], directories: Sequence[str] = DIRECTORIES) -> Iterator[Java]:
    """Yield every Java installation of this machine once, in order of preference.  The first is the
    installation that the user has chosen, if any."""
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
    """Return the Java installation in a directory, or None if the directory contains none."""
    directory = os.path.realpath(home)
    program = os.path.join(directory, "bin", "java")
    if not os.access(program, os.X_OK):
        return None
    try:
        released = read_release(Path(directory, "release").read_text(errors="replace"))
    except OSError:
        released = None
    version_text, modules = released or _ask_java(program)
    version = feature_version(version_text)
    if version is None:
        return None
    return Java(directory, version, version_text, VECTOR_MODULE in modules, found_by)


def read_release(text: str) -> tuple[str, frozenset[str]] | None:
    """Return the version and the modules in the `release` file of a Java installation, or None if
    one of them is missing."""
    fields = dict(re.findall(r'^(\w+)="([^"]*)"', text, re.MULTILINE))
    if "JAVA_VERSION" not in fields:
        return None
    version = feature_version(fields["JAVA_VERSION"])
    if "MODULES" not in fields and (version is None or version >= VERSION_MIN):
        return None
    return fields["JAVA_VERSION"], frozenset(fields.get("MODULES", "").split())


def feature_version(text: str) -> int | None:
    """Return the feature version in a Java version text: 17 for 17.0.15 or 17-ea, 8 for 1.8.0_402.
    Returns None if the text is not a version."""
    match = re.match(r"(?:1\.)?(\d+)", text)
    return int(match[1]) if match else None


def _named(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the Java installations that environment variables name, in Spark's own order, each with
    the name of the variable."""
    if environ.get("JAVA_HOME"):
        yield environ["JAVA_HOME"], "JAVA_HOME"
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    if program:
        yield str(Path(os.path.realpath(program)).parents[1]), "PATH"


def _likeliness(java: Java) -> tuple[int, int]:
    if java.version in VERSIONS_FIRST:
        return VERSIONS_FIRST.index(java.version), 0
    return len(VERSIONS_FIRST), java.version


def _ask_java(program: str) -> tuple[str, frozenset[str]]:
    """Run the program `java` of an installation, and return the version and the modules that it
    prints. Both are empty if the program does not run."""
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
