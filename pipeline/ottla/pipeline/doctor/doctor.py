"""Checks whether a machine can run Spark with Ottla, and names the remedy for each fault.

Pure. The inputs are `MachineFacts` (from `doctor_facts.py`), and the `Trial` of a small query (from
`doctor_trial.py`). Every finding is one row of output. No fault is reported twice, because checks
that depend on a failed check are skipped.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ottla.model.install_hint import install_hint
from ottla.pipeline.doctor.spark_versions import PREFERRED, missing_libraries, version_for
from ottla.pipeline.java import VERSION_MIN, Java, none_fits
from ottla.pipeline.run.spark_errors import CURES as WORKER_CURES

PYTHON_MIN = (3, 11)
"""Oldest version of Python on which Ottla's wheel can be installed."""
PACKAGES_MIN = {"pyspark": (4, 2), "pyarrow": (18,), "numpy": (2,)}
"""Minimum versions of the Python packages that the extra `spark` requires, by package name."""
REASON_LENGTH_MAX = 160
INSTALL = install_hint("spark")
_PREFERRED_CURE = f"pip install 'pyspark == {PREFERRED.spark}.*' 'delta-spark == {PREFERRED.delta}'"


class AnswerState(StrEnum):
    """Outcome of one check of the machine: good, a fault, or skipped."""

    OK = "ok"
    FAILED = "failed"
    NOT_TRIED = "not tried"


class DoctorAnswer(NamedTuple):
    """Result of one check of this machine's ability to run Spark with Ottla."""

    name: str
    state: AnswerState
    found: str
    cure: str = ""
    """Remedy for the fault that a check has found. Empty if none is needed."""
    is_of_programs: bool = False
    """True for a fault that affects only users' own programs that start Spark themselves. `ottla
    pipeline` avoids the fault."""


class Package(NamedTuple):
    """State of one Python package that Ottla's pipelines require."""

    version: str
    """Installed version of the package. Empty if the package is not installed."""
    problem: str = ""
    """Reason why Python cannot import the package. Empty if the import succeeds."""


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter that Spark uses, or would use, for its workers."""

    program: str
    chosen_by: str
    """Reason why Spark selects this Python interpreter: PYSPARK_PYTHON, or a note that it is not
    set."""
    version: tuple[int, int] | None
    """Version of the Python interpreter, or None if it does not run."""
    packages: Mapping[str, Package]
    """State of the packages pyarrow and ottla, as this Python interpreter finds them."""
    problem: str = ""


@dataclass(frozen=True)
class MachineFacts:
    """Properties of a machine that the checks need, collected without starting Spark."""

    python: tuple[int, int]
    program: str
    packages: Mapping[str, Package]
    """State of the packages in `PACKAGES_MIN`, as the Python that runs this program finds them."""
    javas: Sequence[Java]
    """Java installations of the machine, in order of preference for Spark."""
    java_home: str
    """Value of the environment variable JAVA_HOME. Empty if it is not set."""
    spark_home: str
    """Value of the environment variable SPARK_HOME. Empty, as recommended, if it is not set."""
    spark_home_version: str
    """Version of the Spark in the directory SPARK_HOME. Empty if the directory contains no
    Spark."""
    worker: Interpreter
    plain_worker: Interpreter | None
    """Python interpreter that Spark uses if PYSPARK_PYTHON is not set: `python3` on PATH. None if
    PYSPARK_PYTHON is set."""
    delta: str = ""
    """Installed version of the Python package delta-spark; empty if it is not installed."""


class ReachableBrokers(NamedTuple):
    """Brokers of a cluster to which a Spark worker could connect."""

    brokers: int
    """Number of the cluster's brokers, or 0 if no bootstrap address responded."""
    problems: Sequence[str]
    """One error message for each broker that did not respond."""


@dataclass(frozen=True)
class Trial:
    """Result of the small query that tests whether Spark works."""

    seconds: float
    rows: int = 0
    """Number of rows that the small query returned through a Python worker and Arrow. 0 if the
    query failed."""
    problem: str = ""
    """First line of the small query's error message. Empty if the query succeeded."""
    log: str = ""
    """Output of the JVM that ran the small query."""
    is_late: bool = False
    """True if the small query was ended by its timeout."""
    reached: ReachableBrokers | None = None
    """Brokers that the Spark worker of the small query reached, or None if no cluster was named."""


def findings(facts: MachineFacts) -> Iterator[DoctorAnswer]:
    """Yield the results of the checks that do not start Spark, in the order in which faults should
    be fixed."""
    yield python_finding(facts)
    for name in PACKAGES_MIN:
        yield package_finding(name, facts.packages[name])
    yield libraries_finding(facts)
    yield java_finding(facts)
    yield spark_home_finding(facts)
    yield worker_finding(facts)


def python_finding(facts: MachineFacts) -> DoctorAnswer:
    """Check the version of the Python that runs this program. Returns the result of the check."""
    found = f"{_dotted(facts.python)} ({facts.program})"
    if facts.python < PYTHON_MIN:
        return DoctorAnswer(
            "python", AnswerState.FAILED, found, f"use Python {_dotted(PYTHON_MIN)} or later"
        )
    return DoctorAnswer("python", AnswerState.OK, found)


def package_finding(name: str, package: Package) -> DoctorAnswer:
    """Check one required Python package. Returns the result of the check."""
    least = PACKAGES_MIN[name]
    if not package.version:
        return DoctorAnswer(name, AnswerState.FAILED, "is not installed", INSTALL)
    if package.problem:
        cure = f"pip install --force-reinstall {name}"
        return DoctorAnswer(name, AnswerState.FAILED, f"{package.version}: {package.problem}", cure)
    if version_of(package.version) < least:
        return DoctorAnswer(
            name, AnswerState.FAILED, f"{package.version} is older than {_dotted(least)}", INSTALL
        )
    return DoctorAnswer(name, AnswerState.OK, package.version)


def libraries_finding(facts: MachineFacts) -> DoctorAnswer:
    """Check whether the installed delta-spark fits the installed Spark, and name the libraries that
    have no release for this Spark. Returns the result of the check."""
    name, version = "libraries", facts.packages["pyspark"].version
    row = version_for(version)
    if row is None:
        found = "unknown for this Spark" if version else "depend on the Spark"
        return DoctorAnswer(name, AnswerState.OK, f"{found}; docs/spark.md has a table of versions")
    if facts.delta and row.delta != facts.delta:
        wanted = row.delta and f"delta-spark {row.delta} is"
        found = f"delta-spark {facts.delta} is not for Spark {row.spark}; {wanted or 'none is'}"
        cure = f"pip install 'delta-spark == {row.delta}'" if row.delta else _PREFERRED_CURE
        return _of_programs(name, found, cure)
    missing = missing_libraries(row)
    if not missing:
        return DoctorAnswer(name, AnswerState.OK, f"all exist for Spark {row.spark}")
    found = f"Spark {row.spark} has no {', no '.join(missing)}"
    if row is not PREFERRED:
        kept = [one for one in missing if one not in missing_libraries(PREFERRED)]
        found += f"; Spark {PREFERRED.spark} has {', '.join(kept)}"
    return DoctorAnswer(name, AnswerState.OK, found)


def java_finding(facts: MachineFacts) -> DoctorAnswer:
    """Check the Java installations that were found on this machine. Returns the result of the
    check."""
    fit = [java for java in facts.javas if not java.problem]
    if not fit:
        problem, _, cure = none_fits(facts.javas).rpartition("; ")
        return DoctorAnswer("java", AnswerState.FAILED, problem, cure)
    java = fit[0]
    found = f"{java.version_text} ({java.home}, by {java.found_by})"
    first = facts.javas[0]
    if facts.java_home and java.found_by != "JAVA_HOME":
        is_there = first.found_by == "JAVA_HOME"
        why = first.problem if is_there else "has no bin/java"
        found += f"; JAVA_HOME={facts.java_home} {why}"
        return _of_programs("java", found, f"export JAVA_HOME={java.home}")
    if not facts.java_home and first is not java:
        found += f"; {first.home}, by {first.found_by}, {first.problem}"
        return _of_programs("java", found, f"export JAVA_HOME={java.home}")
    if not facts.java_home and java.found_by != "PATH":
        found += "; 'ottla pipeline' finds it, but Spark alone looks at JAVA_HOME and PATH"
        return _of_programs("java", found, f"export JAVA_HOME={java.home}")
    return DoctorAnswer("java", AnswerState.OK, found)


def spark_home_finding(facts: MachineFacts) -> DoctorAnswer:
    """Check SPARK_HOME, which takes precedence over the Spark within pyspark. Returns the result of
    the check."""
    name = "SPARK_HOME"
    if not facts.spark_home:
        return DoctorAnswer(name, AnswerState.OK, "is not set: the Spark within pyspark is used")
    if not facts.spark_home_version:
        found = f"{facts.spark_home} has no Spark"
        return DoctorAnswer(name, AnswerState.FAILED, found, "unset SPARK_HOME")
    found = f"Spark {facts.spark_home_version} ({facts.spark_home})"
    ours = facts.packages["pyspark"].version
    if ours and version_of(ours)[:2] != version_of(facts.spark_home_version)[:2]:
        cure = f"unset SPARK_HOME, or pip install pyspark=={facts.spark_home_version}"
        return DoctorAnswer(name, AnswerState.FAILED, f"{found}, but pyspark is {ours}", cure)
    return DoctorAnswer(name, AnswerState.OK, found)


def worker_finding(facts: MachineFacts) -> DoctorAnswer:
    """Check the Python in which Spark's workers run Ottla's code. Returns the result of the
    check."""
    worker = facts.worker
    name = "PYSPARK_PYTHON"
    problem = _problem_of_worker(worker, facts.python)
    if problem:
        cure = f"export PYSPARK_PYTHON={facts.program}"
        return DoctorAnswer(name, AnswerState.FAILED, f"{worker.program} {problem}", cure)
    plain = facts.plain_worker
    if plain is not None:
        problem = _problem_of_worker(plain, facts.python)
        if problem:
            found = (
                "is not set: 'ottla pipeline' and ottla.pipeline.register set it, but Spark alone "
                f"starts {plain.program}, which {problem}"
            )
            return _of_programs(name, found, f"export PYSPARK_PYTHON={facts.program}")
        return DoctorAnswer(name, AnswerState.OK, "is not set, and need not be")
    return DoctorAnswer(name, AnswerState.OK, f"{worker.program} ({worker.chosen_by})")


def _of_programs(name: str, found: str, cure: str) -> DoctorAnswer:
    """Return the result of a check for a fault that affects only programs that start Spark
    themselves."""
    return DoctorAnswer(name, AnswerState.FAILED, found, cure, is_of_programs=True)


def is_fit(found: Sequence[DoctorAnswer]) -> bool:
    """Return whether all checks of the machine have succeeded. If so, even programs that start
    Spark themselves work."""
    return all(finding.state is not AnswerState.FAILED for finding in found)


def _problem_of_worker(worker: Interpreter, driver: tuple[int, int]) -> str:
    """Return the reason why a Python interpreter is unsuitable as a Spark worker, or an empty text
    if it is suitable. `driver` is the Python version of the driver."""
    if worker.version is None:
        return f"does not run ({worker.problem})"
    if worker.version != driver:
        return f"is Python {_dotted(worker.version)}, but the driver is {_dotted(driver)}"
    lacking = [name for name, package in worker.packages.items() if not package.version]
    if lacking:
        return f"has no {' and no '.join(lacking)}"
    for name, package in worker.packages.items():
        if package.problem:
            return f"cannot import {name} ({package.problem})"
        if name in PACKAGES_MIN and version_of(package.version) < PACKAGES_MIN[name]:
            return f"has {name} {package.version}, older than {_dotted(PACKAGES_MIN[name])}"
    return ""


def is_worth_a_trial(found: Sequence[DoctorAnswer]) -> bool:
    """Return whether the small query of `doctor_trial.py` could succeed.

    If it could not, running it would only repeat known faults.
    """
    return is_fit([finding for finding in found if not finding.is_of_programs])


def trial_finding(trial: Trial | None, rows_wanted: int) -> DoctorAnswer:
    """Check the outcome of the small query that tests Spark. Returns the result of the check.
    `trial` is None if the query was not run."""
    name = "query"
    if trial is None:
        return DoctorAnswer(name, AnswerState.NOT_TRIED, "the faults above would be its own")
    if trial.is_late:
        cure = _cure_of(trial.log) or "try again with a longer --timeout, and less load"
        return DoctorAnswer(
            name, AnswerState.FAILED, f"was not done after {trial.seconds:.0f} s", cure
        )
    if trial.problem:
        cure = _cure_of(f"{trial.problem}\n{trial.log}") or "look at its log: --verbose"
        return DoctorAnswer(name, AnswerState.FAILED, trial.problem, cure)
    if trial.rows != rows_wanted:
        found = f"gave {trial.rows} rows of {rows_wanted}"
        return DoctorAnswer(name, AnswerState.FAILED, found, "look at its log: --verbose")
    found = f"{trial.rows} rows through a Python worker and Arrow in {trial.seconds:.1f} s"
    return DoctorAnswer(name, AnswerState.OK, found)


def brokers_finding(reached: ReachableBrokers | None) -> DoctorAnswer:
    """Check the brokers that a Spark worker reached, and return the result. `reached` is None if
    the small query failed earlier."""
    name = "brokers"
    if reached is None:
        return DoctorAnswer(name, AnswerState.NOT_TRIED, "the faults above would be its own")
    if not reached.brokers:
        cure = "look at --bootstrap-server: do brokers run there, and may workers connect to them?"
        return DoctorAnswer(name, AnswerState.FAILED, "; ".join(reached.problems), cure)
    if reached.problems:
        cure = "have each broker's advertised.listeners name an address that workers reach"
        return DoctorAnswer(name, AnswerState.FAILED, "; ".join(reached.problems), cure)
    noun = "broker answers" if reached.brokers == 1 else "brokers answer"
    return DoctorAnswer(name, AnswerState.OK, f"{reached.brokers} {noun} a worker")


CURES = (
    (r"Module jdk\.incubator\.vector not found", f"install a full Java {VERSION_MIN}, not a JRE"),
    (r"UnsupportedClassVersionError", f"install a full Java {VERSION_MIN}, and set JAVA_HOME"),
    (r"UnknownHostException", "give this host's name an address in /etc/hosts"),
    (r"BindException", "export SPARK_LOCAL_IP=127.0.0.1 (this host's name has no address of it)"),
    (r"No space left on device", "free some space, or set SPARK_LOCAL_DIRS to a larger directory"),
    (
        r"OutOfMemoryError|Could not reserve enough space|Cannot allocate memory",
        "free some memory, or give Spark less: spark.driver.memory",
    ),
    (r"PYTHON_VERSION_MISMATCH", "have the same Python version on every worker"),
    (r"No module named '([\w.]+)'", rf"have \1 on every worker: {INSTALL}"),
    (
        r"Failed to connect to master|All masters are unresponsive|[Mm]aster (must|URL)",
        "look at --master: does the cluster run, and is it reached from here?",
    ),
    *WORKER_CURES,
    (r"Cannot run program|error=2", "export PYSPARK_PYTHON=<the Python with the extra spark>"),
)
"""Patterns in the log of a Spark process that failed, each with the remedy for its fault. The first
pattern that matches counts."""


def _cure_of(text: str) -> str:
    for pattern, cure in CURES:
        match = re.search(pattern, text)
        if match:
            return match.expand(cure)
    return ""


def reason_in(log: str) -> str:
    """Return the first error in the log of a failed Spark, shortened to one line, or an empty text
    if the log contains no error."""
    match = _ERROR.search(log)
    return f"{match[1]}: {match[2]}"[:REASON_LENGTH_MAX] if match else ""


_ERROR = re.compile(
    r'^(?:Exception in thread "[^"]*" |Caused by: |: )?(?:[\w$]+\.)*'
    r"([\w$]*(?:Exception|Error)): (.+)$",
    re.MULTILINE,
)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version text, such as (4, 1, 0). Returns an empty tuple if
    the text starts with no number."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
