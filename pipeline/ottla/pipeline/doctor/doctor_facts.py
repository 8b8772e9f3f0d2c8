"""Collects facts about a machine for `doctor.py`: packages, Java installations, and the Python
interpreters that Spark uses.

Not pure: it reads files and the environment, and starts other Pythons to query them.  It imports
neither pyspark nor pyarrow into this process, because a failing import could end the process.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ottla.pipeline.doctor.doctor import PACKAGES_MIN, Interpreter, MachineFacts, Package
from ottla.pipeline.java import DIRECTORIES, javas

ASK_SECONDS_MAX = 60.0
"""Timeout in seconds for a Python to import Ottla's packages. A Python that takes longer is
reported as unusable."""
WORKER_NEEDS = ("pyarrow", "numpy", "ottla")

_QUESTION = """
import importlib, importlib.metadata, json, sys
answer = {"version": sys.version_info[:2], "program": sys.executable, "packages": {}}
for name in sys.argv[1:]:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    problem = ""
    try:
        module = importlib.import_module("ottla.pipeline" if name == "ottla" else name)
        version = version or str(getattr(module, "__version__", "") or "unknown")
    except ModuleNotFoundError as error:
        problem = str(error) if version else ""
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}".splitlines()[0]
    answer["packages"][name] = (version, problem)
print(json.dumps(answer))
"""
"""Source text of a program that another Python interpreter runs to report its version and packages.
The interpreter may be old, so the program uses only features of Python 3.8."""


def look(environ: Mapping[str, str], directories: Sequence[str] = DIRECTORIES) -> MachineFacts:
    """Return the properties of this machine that the checks need, without starting Spark.
    `directories` are patterns of directories that are searched for Java installations."""
    here = ask(sys.executable, "this one", [*PACKAGES_MIN, "ottla"], environ)
    named = environ.get("PYSPARK_PYTHON", "")
    plain = None
    if named:
        worker = ask(named, "PYSPARK_PYTHON", WORKER_NEEDS, environ)
    else:
        worker = here
        plain = ask("python3", "PATH", WORKER_NEEDS, environ)
    spark_home = environ.get("SPARK_HOME", "")
    return MachineFacts(
        sys.version_info[:2],
        sys.executable,
        here.packages,
        list(javas(environ, directories)),
        environ.get("JAVA_HOME", ""),
        spark_home,
        spark_version(spark_home) if spark_home else "",
        worker,
        plain,
        delta=installed_version("delta-spark"),
    )


def installed_version(package: str) -> str:
    """Return the installed version of a Python package, or an empty text if this Python does not
    have it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def ask(
    program: str, chosen_by: str, packages: Sequence[str], environ: Mapping[str, str]
) -> Interpreter:
    """Run the Python interpreter `program`, and return its version and the versions of the named
    packages.

    If the program does not exist, fails or exceeds the timeout, the version is None, and the result
    contains the reason.
    """
    path = shutil.which(program, path=environ.get("PATH", os.defpath))
    if path is None:
        return Interpreter(program, chosen_by, None, {}, "there is no such program")
    try:
        done = subprocess.run(
            [path, "-c", _QUESTION, *packages],
            capture_output=True,
            text=True,
            timeout=ASK_SECONDS_MAX,
            env=dict(environ),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Interpreter(path, chosen_by, None, {}, f"silent for {ASK_SECONDS_MAX:.0f} s")
    except OSError as error:
        return Interpreter(path, chosen_by, None, {}, str(error.strerror))
    try:
        report = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        words = done.stderr.strip().splitlines()
        problem = words[-1] if words else f"ended with {done.returncode}"
        return Interpreter(path, chosen_by, None, {}, problem)
    return Interpreter(
        path,
        chosen_by,
        (report["version"][0], report["version"][1]),
        {name: Package(*found) for name, found in report["packages"].items()},
    )


def spark_version(home: str) -> str:
    """Return the version of the Spark in a directory, read from the names of its jars, or an empty
    text if the directory contains no Spark."""
    for path in Path(home, "jars").glob("spark-core_*.jar"):
        match = re.fullmatch(r"spark-core_[\d.]+-(.+)\.jar", path.name)
        if match:
            return match[1]
    return ""
