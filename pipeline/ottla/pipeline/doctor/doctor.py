"""Judges whether a machine can run Spark with Ottla: each fault with its cure.

Pure: what was seen comes in as `MachineFacts` (`doctor_facts.py` looks), and what came of a small
query as `Trial` (`doctor_trial.py` runs it).  Every finding is one row for a person, and no fault
is told twice: what cannot be judged because of another fault is not tried.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ottla.model.install_hint import install_hint
from ottla.pipeline.java import VERSION_MIN, Java, none_fits
from ottla.pipeline.run.spark_errors import CURES as WORKER_CURES

PYTHON_MIN = (3, 11)
"""The oldest that our wheel installs on."""
PACKAGES_MIN = {"pyspark": (4, 2), "pyarrow": (18,), "numpy": (2,)}
"""What the extra `spark` asks for."""
REASON_LENGTH_MAX = 160
INSTALL = install_hint("spark")


class AnswerState(StrEnum):
    """How a question was answered."""

    OK = "ok"
    FAILED = "failed"
    NOT_TRIED = "not tried"


class DoctorAnswer(NamedTuple):
    """The answer to one question."""

    name: str
    state: AnswerState
    found: str
    cure: str = ""
    """What to do; empty when there is nothing to do."""
    is_of_programs: bool = False
    """Whether `ottla pipeline` gets by, and only programs that start Spark themselves fail."""


class Package(NamedTuple):
    """One Python package that is needed."""

    version: str
    """Empty when it is not installed."""
    problem: str = ""
    """Why it cannot be imported; empty when it can."""


@dataclass(frozen=True)
class Interpreter:
    """A Python that Spark starts as its worker, or would."""

    program: str
    chosen_by: str
    """PYSPARK_PYTHON, or that nothing was set."""
    version: tuple[int, int] | None
    """None when it does not run."""
    packages: Mapping[str, Package]
    """pyarrow and ottla, as it has them."""
    problem: str = ""


@dataclass(frozen=True)
class MachineFacts:
    """What was seen of a machine without starting Spark."""

    python: tuple[int, int]
    program: str
    packages: Mapping[str, Package]
    """Those of PACKAGES_MIN."""
    javas: Sequence[Java]
    """Likeliest first."""
    java_home: str
    """The environment's; empty when it is not set."""
    spark_home: str
    """The environment's; empty when it is not set, which is best."""
    spark_home_version: str
    """Of the Spark that lies there; empty when none does."""
    worker: Interpreter
    plain_worker: Interpreter | None
    """What Spark alone would start when PYSPARK_PYTHON is not set: `python3` on PATH."""


class Reached(NamedTuple):
    """Which brokers a worker reached."""

    brokers: int
    """Those that the cluster names; 0 where no bootstrap address answered."""
    problems: Sequence[str]
    """A sentence for each that does not answer."""


@dataclass(frozen=True)
class Trial:
    """What came of a small query."""

    seconds: float
    rows: int = 0
    """Those that came back through a Python worker and Arrow; 0 when it failed."""
    problem: str = ""
    """Its first words when it failed."""
    log: str = ""
    """What the JVM wrote."""
    is_late: bool = False
    """Whether it was ended because its time was over."""
    reached: Reached | None = None
    """None where no cluster was named."""


def findings(facts: MachineFacts) -> Iterator[DoctorAnswer]:
    """Yield what can be said without starting Spark, in the order in which faults are mended."""
    yield python_finding(facts)
    for name in PACKAGES_MIN:
        yield package_finding(name, facts.packages[name])
    yield java_finding(facts)
    yield spark_home_finding(facts)
    yield worker_finding(facts)


def python_finding(facts: MachineFacts) -> DoctorAnswer:
    """Judge the Python that asks."""
    found = f"{_dotted(facts.python)} ({facts.program})"
    if facts.python < PYTHON_MIN:
        return DoctorAnswer(
            "python", AnswerState.FAILED, found, f"use Python {_dotted(PYTHON_MIN)} or later"
        )
    return DoctorAnswer("python", AnswerState.OK, found)


def package_finding(name: str, package: Package) -> DoctorAnswer:
    """Judge one Python package that is needed here."""
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


def java_finding(facts: MachineFacts) -> DoctorAnswer:
    """Judge the Javas that were found."""
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
    """Judge SPARK_HOME, which wins over the Spark within pyspark."""
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
    """Judge the Python that runs our code beside the JVM."""
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
    """Return a fault that programs meet which start Spark themselves."""
    return DoctorAnswer(name, AnswerState.FAILED, found, cure, is_of_programs=True)


def is_fit(found: Sequence[DoctorAnswer]) -> bool:
    """Return whether no program fails, also one that starts Spark itself."""
    return all(finding.state is not AnswerState.FAILED for finding in found)


def _problem_of_worker(worker: Interpreter, driver: tuple[int, int]) -> str:
    """Return why a Python cannot be a worker of this one; nothing when it can."""
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
    """Return whether a query of `ottla pipeline` has a chance: else known faults would speak."""
    return is_fit([finding for finding in found if not finding.is_of_programs])


def trial_finding(trial: Trial | None, rows_wanted: int) -> DoctorAnswer:
    """Judge a small query; None when it was not tried."""
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


def brokers_finding(reached: Reached | None) -> DoctorAnswer:
    """Judge which brokers a worker reached; None when it did not come to that."""
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
"""What stands in the log of a Spark that fails, and what then helps; the first that is found."""


def _cure_of(text: str) -> str:
    for pattern, cure in CURES:
        match = re.search(pattern, text)
        if match:
            return match.expand(cure)
    return ""


def reason_in(log: str) -> str:
    """Return the first error that a log tells of, shortened to a line; empty when it has none."""
    match = _ERROR.search(log)
    return f"{match[1]}: {match[2]}"[:REASON_LENGTH_MAX] if match else ""


_ERROR = re.compile(
    r'^(?:Exception in thread "[^"]*" |Caused by: |: )?(?:[\w$]+\.)*'
    r"([\w$]*(?:Exception|Error)): (.+)$",
    re.MULTILINE,
)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; empty when there are none."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
