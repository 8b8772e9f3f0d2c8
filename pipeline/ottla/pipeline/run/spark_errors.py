"""What Spark says went wrong, as one sentence.

Ours where a sentence of ours is in it; else the first line of Spark's own words, without the
wrappings and stack traces of the JVM.
"""

import re

from ottla.model.errors import OttlaError

_WRAPPED = re.compile(
    r"^(?:Exception in thread \"\w+\" "
    r"|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error): "
    r"|\[STREAM_FAILED\] Query \[.*?\] terminated with exception: "
    r"|Job aborted due to stage failure: .*?Exception: )"
)
"""Class names and frames that Spark puts before what was said."""
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_LAST_OF_TRACEBACK = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit)\w*): (.*)$", re.MULTILINE)


CURES = (
    (
        r"DATA_SOURCE_NOT_FOUND.*\bottla\b",
        "the Python of Spark's workers does not have this package: call "
        "ottla.pipeline.register(spark), or export PYSPARK_PYTHON=<the Python with it>",
    ),
    (
        r"[Pp]ython worker (?:failed )?to connect back",
        "the worker's Python did not start within Spark's time (10 to 15 s): give Spark fewer "
        "cores (--master local[2]) or the machine less load; if it never starts, "
        "'ottla doctor spark' says why",
    ),
)
"""What stands in the text of such a failure, and what then helps."""
_STATE = re.compile(r" SQLSTATE: \w{5};?")


class SparkFailedError(OttlaError):
    """Spark gave up, for a reason that is told in one sentence."""


def failure_of(error: BaseException, log: str) -> tuple[SparkFailedError, bool]:
    """Return an error of pyspark or py4j as one sentence; and whether Spark's log tells more."""
    from ottla.pipeline.one_sentence import sentence_of  # brings the client, which help needs not

    # Of a user's own file: where in it.
    place = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
    ours = sentence_of(error)
    if ours is not None:
        return SparkFailedError(place + ours), False
    cure = cure_of(str(error))
    return SparkFailedError(
        f"{place}{told(error)}{cure and f'; {cure}'} (Spark's log: {log})"
    ), True


def cure_of(text: str) -> str:
    """Return what helps against a failure of Spark's workers; empty if its text names none."""
    return next((cure for pattern, cure in CURES if re.search(pattern, text)), "")


def told(error: BaseException) -> str:
    """Return what Spark itself says in an error of pyspark or py4j, in one sentence."""
    return first_words(_text_of(error)) or type(error).__name__


def first_words(text: str) -> str:
    """Return the words that matter of a text with Spark's wrappings, or Python's trace, in it."""
    trace = _TRACEBACK.search(text)
    if trace is not None:
        last = _LAST_OF_TRACEBACK.findall(text[trace.end() :])
        if last:
            return str(last[-1]).strip()
    text = text.partition("JVM stacktrace:")[0].strip()
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    while (shorter := _WRAPPED.sub("", line, count=1)) != line and shorter:
        line = shorter
    return _STATE.sub("", line)


def _text_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:
        # Its str() asks the JVM for the whole stack.
        return str(java.toString())
    return str(error)
