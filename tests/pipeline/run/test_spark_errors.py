"""Spark's messages, without their wrappings."""

import inspect
import re

import pytest
from pyspark.errors.exceptions import base

from ottla.pipeline.one_sentence import NAME
from ottla.pipeline.run.session import CONTEXT_LOGGERS
from ottla.pipeline.run.spark_errors import failure_of, first_words, slip_in, spark_message

PYTHON_TRACE = """An exception was thrown from Python:
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
KeyError: 'a'

During handling of the above exception, another exception occurred:

  File "/x/mine.py", line 3, in double
ValueError: 7 is no colour

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'Exception in thread "main" org.apache.spark.SparkException: Master must be known',
            "Master must be known",
        ),
        (
            "org.apache.spark.sql.AnalysisException: [PATH_NOT_FOUND] Path does not exist: file:/x."
            " SQLSTATE: 42K03\n\tat org.apache",
            "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: no such column "
            "SQLSTATE: XXKST\n\nJVM stacktrace:\nboom",
            "no such column",
        ),
        (PYTHON_TRACE, "7 is no colour"),
        ("\n\n  plain words  \nmore", "plain words"),
        ("", ""),
    ],
)
def test_the_first_words_that_matter_are_found(text: str, words: str) -> None:
    assert first_words(text) == words


BEHIND_WORDS = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/x/mine.py", line 4, in half
    return len(v) / nothing
                    ^^^^^^^
NameError: name 'nothing' is not defined
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
"""


def test_no_logger_of_pyspark_repeats_an_error_with_javas_stack() -> None:
    names = re.findall(r'PySparkLogger\.getLogger\("(\w+)"\)', inspect.getsource(base))
    assert sorted(set(names)) == sorted(CONTEXT_LOGGERS)


def test_a_slip_is_found_in_a_traceback_behind_words_of_spark() -> None:
    assert slip_in(BEHIND_WORDS) == "/x/mine.py, line 4: NameError: name 'nothing' is not defined"
    assert first_words(BEHIND_WORDS) == "name 'nothing' is not defined"


def test_a_slip_in_a_worker_is_reported_with_its_own_file_and_line() -> None:
    error = RuntimeError(PYTHON_TRACE)
    error.add_note("/x/mine.py, line 9")
    failure, tells_more = failure_of(error, "/tmp/spark.log")
    assert tells_more
    assert str(failure) == (
        "/x/mine.py, line 3: ValueError: 7 is no colour (started at /x/mine.py, line 9) "
        "(Spark's log: /tmp/spark.log)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "no traceback",
        'Traceback (most recent call last):\n  File "/pyspark/a.py", line 1, in f\nKeyError',
        'Traceback (most recent call last):\n  File "/x/mine.py", line 1, in f\nand no error',
    ],
)
def test_a_failure_outside_of_the_users_code_is_no_slip(text: str) -> None:
    assert slip_in(text) is None


def test_a_sentence_of_ours_is_preferred_and_needs_no_log() -> None:
    error = RuntimeError(f"Job aborted\n  {NAME}: topic 'x' is not there\nTraceback")
    failure, tells_more = failure_of(error, "/tmp/spark.log")
    assert (str(failure), tells_more) == ("topic 'x' is not there", False)


def test_what_spark_says_comes_with_the_log_that_tells_more() -> None:
    failure, tells_more = failure_of(RuntimeError("[OOM] no memory"), "/tmp/spark.log")
    assert (str(failure), tells_more) == ("[OOM] no memory (Spark's log: /tmp/spark.log)", True)


def test_an_error_that_says_nothing_is_called_by_its_name() -> None:
    assert spark_message(ZeroDivisionError()) == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: ottla. Make", "register(spark)"),
        ("SparkException: Python worker failed to connect back.", "ottla doctor spark"),
        ("Timed out while waiting for the Python worker to connect back", "local[2]"),
    ],
)
def test_a_failure_of_workers_comes_with_its_cure(text: str, cure: str) -> None:
    failure, _ = failure_of(RuntimeError(text), "/tmp/spark.log")
    assert cure in str(failure)
    assert "\n" not in str(failure)
    assert ".;" not in str(failure)
    failure, _ = failure_of(RuntimeError("Failed to find the data source: delta"), "log")
    assert str(failure) == "Failed to find the data source: delta (Spark's log: log)"
