"""The doctor's findings: every fault that was seen on a machine, and its cure."""

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.model.install_hint import install_hint
from ottla.pipeline.doctor.doctor import (
    PACKAGES_MIN,
    AnswerState,
    DoctorAnswer,
    Interpreter,
    MachineFacts,
    Package,
    ReachableBrokers,
    Trial,
    brokers_finding,
    findings,
    is_fit,
    is_worth_a_trial,
    libraries_finding,
    reason_in,
    trial_finding,
)
from ottla.pipeline.doctor.spark_versions import PREFERRED, page_rows
from ottla.pipeline.java import Java

HERE = "/venv/bin/python"
GOOD = {"pyspark": Package("4.3.0"), "pyarrow": Package("26.0.1"), "numpy": Package("2.4.6")}
OURS = {"pyarrow": Package("26.0.1"), "numpy": Package("2.4.6"), "ottla": Package("0.1.0")}
JAVA = Java("/jvm/17", 17, "17.0.15", True, "PATH")
WORKER = Interpreter(HERE, "this one", (3, 11), OURS)
FIT = MachineFacts((3, 11), HERE, GOOD, [JAVA], "", "", "", WORKER, WORKER)


def reported(facts: MachineFacts) -> dict[str, tuple[AnswerState, str, str]]:
    """Return the doctor's findings about a machine."""
    return {
        one.name: (one.state, one.found, one.cure)
        for one in findings(facts)
        if one.state is not AnswerState.OK
    }


def test_of_a_machine_that_is_fit_every_finding_is_ok() -> None:
    assert reported(FIT) == {}
    assert [one.name for one in findings(FIT)] == [
        "python",
        "pyspark",
        "pyarrow",
        "numpy",
        "libraries",
        "java",
        "SPARK_HOME",
        "PYSPARK_PYTHON",
    ]
    assert is_worth_a_trial(list(findings(FIT)))


@pytest.mark.parametrize(
    ("name", "package", "found", "cure"),
    [
        ("pyspark", Package(""), "is not installed", install_hint("spark")),
        ("pyspark", Package("3.5.1"), "3.5.1 is older than 4.2", install_hint("spark")),
        ("pyarrow", Package("17.0"), "17.0 is older than 18", install_hint("spark")),
        (
            "numpy",
            Package("2.4.6", "ImportError: libopenblas.so"),
            "2.4.6: ImportError: libopenblas.so",
            "pip install --force-reinstall numpy",
        ),
    ],
)
def test_a_package_that_lacks_is_too_old_or_broken_is_reported_with_what_mends_it(
    name: str, package: Package, found: str, cure: str
) -> None:
    facts = replace(FIT, packages={**GOOD, name: package})
    assert reported(facts) == {name: (AnswerState.FAILED, found, cure)}
    assert not is_worth_a_trial(list(findings(facts)))


def test_no_java_or_none_that_does_has_failed() -> None:
    state, found, cure = reported(replace(FIT, javas=[]))["java"]
    assert (state, found) == (AnswerState.FAILED, "no Java was found here, and Spark needs Java 17")
    assert cure.startswith("install a full Java 17")
    trimmed = JAVA._replace(has_vector=False)
    state, found, _ = reported(replace(FIT, javas=[trimmed]))["java"]
    assert state is AnswerState.FAILED
    assert found == "/jvm/17 is a trimmed Java 17 without the module jdk.incubator.vector"


@pytest.mark.parametrize(
    ("java_home", "javas", "words"),
    [
        ("/nowhere", [JAVA], "JAVA_HOME=/nowhere has no bin/java"),
        (
            "/jvm/11",
            [Java("/jvm/11", 11, "11.0.2", True, "JAVA_HOME"), JAVA],
            "JAVA_HOME=/jvm/11 is Java 11, and Spark needs 17",
        ),
        (
            "",
            [
                Java("/jvm/11", 11, "11.0.2", True, "PATH"),
                JAVA._replace(found_by="/usr/lib/jvm"),
            ],
            "/jvm/11, by PATH, is Java 11, and Spark needs 17",
        ),
        (
            "",
            [JAVA._replace(found_by="/usr/lib/jvm")],
            "Spark alone looks at JAVA_HOME and PATH",
        ),
    ],
    ids=["no such", "too old", "too old on PATH", "lies about"],
)
def test_a_java_that_only_we_find_has_failed_since_programs_would(
    java_home: str, javas: list[Java], words: str
) -> None:
    facts = replace(FIT, java_home=java_home, javas=javas)
    state, found, cure = reported(facts)["java"]
    assert state is AnswerState.FAILED
    assert is_worth_a_trial(list(findings(facts)))
    assert not is_fit(list(findings(facts)))
    assert found.endswith(words)
    assert cure == "export JAVA_HOME=/jvm/17"


def test_another_spark_than_pyspark_is_or_none_where_spark_home_points_has_failed() -> None:
    elsewhere = replace(FIT, spark_home="/opt/spark")
    assert reported(elsewhere) == {
        "SPARK_HOME": (AnswerState.FAILED, "/opt/spark has no Spark", "unset SPARK_HOME")
    }
    other = replace(elsewhere, spark_home_version="3.5.1")
    assert reported(other)["SPARK_HOME"] == (
        AnswerState.FAILED,
        "Spark 3.5.1 (/opt/spark), but pyspark is 4.3.0",
        "unset SPARK_HOME, or pip install pyspark==3.5.1",
    )
    assert reported(replace(elsewhere, spark_home_version="4.3.1")) == {}


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        (Interpreter("/py", "PYSPARK_PYTHON", None, {}, "no such program"), "does not run"),
        (replace(WORKER, version=(3, 12)), "is Python 3.12, but the driver is 3.11"),
        (replace(WORKER, packages={**OURS, "ottla": Package("")}), "has no ottla"),
        (
            replace(WORKER, packages={"pyarrow": Package(""), "ottla": Package("")}),
            "has no pyarrow and no ottla",
        ),
        (
            replace(WORKER, packages={**OURS, "pyarrow": Package("26", "ImportError: x")}),
            "cannot import pyarrow (ImportError: x)",
        ),
        (
            replace(WORKER, packages={**OURS, "pyarrow": Package("12.0")}),
            "has pyarrow 12.0, older than 18",
        ),
    ],
)
def test_a_worker_that_cannot_run_our_code_has_failed_also_where_only_spark_takes_it(
    worker: Interpreter, words: str
) -> None:
    state, found, cure = reported(replace(FIT, worker=worker, plain_worker=None))["PYSPARK_PYTHON"]
    assert state is AnswerState.FAILED
    assert words in found
    assert cure == f"export PYSPARK_PYTHON={HERE}"
    facts = replace(FIT, plain_worker=worker)
    state, found, cure = reported(facts)["PYSPARK_PYTHON"]
    assert state is AnswerState.FAILED
    assert is_worth_a_trial(list(findings(facts)))
    assert not is_fit(list(findings(facts)))
    assert words in found
    assert cure == f"export PYSPARK_PYTHON={HERE}"


def test_a_fault_that_ottla_pipeline_gets_by_keeps_no_query_from_being_tried() -> None:
    facts = replace(FIT, java_home="/nowhere")
    assert reported(facts)
    assert is_worth_a_trial(list(findings(facts)))


GATEWAY = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
TRIMMED_LOG = """Error occurred during initialization of boot layer
java.lang.module.FindException: Module jdk.incubator.vector not found
"""
MASTER_LOG = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or …
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
BIND_LOG = """26/11/21 17:21:49 ERROR SparkContext: Error initializing SparkContext.
java.net.BindException: bind(..) failed with error(-99): Cannot assign requested address
"""


@pytest.mark.parametrize(
    ("log", "reason", "cure"),
    [
        (
            TRIMMED_LOG,
            "FindException: Module jdk.incubator.vector not found",
            "install a full Java 17, not a JRE",
        ),
        (
            MASTER_LOG,
            "SparkException: Master must either be yarn or …",
            "look at --master: does the cluster run, and is it reached from here?",
        ),
        (
            BIND_LOG,
            "BindException: bind(..) failed with error(-99): Cannot assign requested address",
            "export SPARK_LOCAL_IP=127.0.0.1 (this host's name has no address of it)",
        ),
        (
            "Caused by: a.b.PythonException: x\nModuleNotFoundError: No module named 'ottla'\n",
            "PythonException: x",
            "have ottla on every worker: " + install_hint("spark"),
        ),
        ("nothing of note\n", "", "look at its log: --verbose"),
    ],
    ids=["trimmed Java", "master", "host name", "worker", "unknown"],
)
def test_a_query_that_fails_is_reported_by_the_first_error_of_its_log_and_what_helps(
    log: str, reason: str, cure: str
) -> None:
    assert reason_in(log) == reason
    found = trial_finding(Trial(3.0, problem=reason or GATEWAY, log=log), 10)
    assert found == DoctorAnswer("query", AnswerState.FAILED, reason or GATEWAY, cure)


def test_a_query_is_judged_by_its_rows_and_its_time() -> None:
    assert trial_finding(None, 10).state is AnswerState.NOT_TRIED
    assert trial_finding(Trial(8.84, rows=10), 10)[1:3] == (
        AnswerState.OK,
        "10 rows through a Python worker and Arrow in 8.8 s",
    )
    assert trial_finding(Trial(8.8, rows=9), 10)[1:3] == (AnswerState.FAILED, "gave 9 rows of 10")
    late = trial_finding(Trial(30.0, log="WARN Failed to connect to master h:1", is_late=True), 10)
    assert late.found == "was not done after 30 s"
    assert late.cure.startswith("look at --master")


def test_brokers_are_judged_by_what_a_worker_reached() -> None:
    assert brokers_finding(None).state is AnswerState.NOT_TRIED
    assert brokers_finding(ReachableBrokers(1, []))[1:3] == (
        AnswerState.OK,
        "1 broker answers a worker",
    )
    assert brokers_finding(ReachableBrokers(3, [])).found == "3 brokers answer a worker"
    none = brokers_finding(ReachableBrokers(0, ["cannot connect to h:1: no process listens there"]))
    assert none.state is AnswerState.FAILED
    assert none.cure.startswith("look at --bootstrap-server")
    some = brokers_finding(ReachableBrokers(2, ["broker 2: cannot connect to inner:9092"]))
    assert (some.state, some.found) == (
        AnswerState.FAILED,
        "broker 2: cannot connect to inner:9092",
    )
    assert "advertised.listeners" in some.cure


def test_the_oldest_packages_are_those_that_the_extra_asks_for() -> None:
    from tomllib import loads

    pyproject = loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    asked = pyproject["project"]["optional-dependencies"]["spark"]
    ours = {f"{name} >= {'.'.join(map(str, least))}" for name, least in PACKAGES_MIN.items()}
    major, minor = map(int, PREFERRED.spark.split("."))
    assert {one.partition(",")[0] for one in asked} == ours
    # The next Spark has no libraries yet.
    assert f"pyspark >= {PREFERRED.spark}, < {major}.{minor + 1}" in asked


def test_the_table_of_versions_is_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text().splitlines()
    assert [line for line in page_rows() if line not in page] == []


@pytest.mark.parametrize(
    ("pyspark", "found"),
    [
        ("4.2.0", "Spark 4.2 has no Iceberg's runtime"),
        ("4.3.0", "no delta-spark, no Iceberg's runtime; Spark 4.2 has Spark's Kafka connector"),
        ("9.0.0", "unknown for this Spark"),
        ("", "depend on the Spark"),
    ],
)
def test_libraries_that_do_not_exist_for_a_spark_are_named(pyspark: str, found: str) -> None:
    facts = replace(FIT, packages={**GOOD, "pyspark": Package(pyspark)})
    answer = libraries_finding(facts)
    assert answer.state is AnswerState.OK
    assert found in answer.found


@pytest.mark.parametrize(
    ("pyspark", "delta", "cure"),
    [
        ("4.2.0", "4.4.1", ""),
        ("4.2.0", "4.0.1", "pip install 'delta-spark == 4.4.1'"),
        ("4.3.0", "4.4.1", "pip install 'pyspark == 4.2.*' 'delta-spark == 4.4.1'"),
    ],
)
def test_a_delta_of_another_spark_is_reported(pyspark: str, delta: str, cure: str) -> None:
    facts = replace(FIT, packages={**GOOD, "pyspark": Package(pyspark)}, delta=delta)
    assert libraries_finding(facts).cure == cure
