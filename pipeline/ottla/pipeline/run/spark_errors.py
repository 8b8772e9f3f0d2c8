"""Shortens Spark's errors to one sentence.

If an error contains a message of Ottla's own (`TopicError`), that message is used. Otherwise the
result is the first line of Spark's message, without the JVM's class names and stack traces.
"""

import re

from ottla.model.errors import OttlaError

_WRAPPED = re.compile(
    r"^(?:Exception in thread \"\w+\" "
    r"|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error): "
    r"|\[STREAM_FAILED\] Query \[.*?\] terminated with exception: "
    r"|Job aborted due to stage failure: .*?Exception: )"
)
"""Pattern of class names and prefixes that Spark writes before an error message."""
_TRACEBACK = re.compile(r"\bTraceback \(most recent call last\):")
"""Pattern of the first line of a Python traceback. Other text may precede it on the line: Spark 4.3
adds a prefix for Python functions that do not use Arrow."""
_LAST_OF_TRACEBACK = re.compile(r"^(?:[\w.]+(?:Error|Exception|Exit)\w*): (.*)$", re.MULTILINE)
_FRAME = re.compile(r'^ *File "([^"]+)", line (\d+)', re.MULTILINE)
_NOT_OWN = re.compile(
    r"^<|[/\\](?:pyspark|pyspark\.zip|ottla|site-packages|lib/python\d[.\d]*)[/\\]"
)
"""Pattern of files in a traceback that do not belong to the user."""
_ERROR_LINE = re.compile(
    r"^((?:\w+\.)*\w+(?:Error|Exception|Exit|Interrupt|Iteration|Warning)(?:: .*)?)$", re.MULTILINE
)
"""Pattern of the last line of a Python traceback. The error in it may have no message."""


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
"""Patterns in the error message of a Spark failure, each with its remedy."""
_STATE = re.compile(r" SQLSTATE: \w{5};?")


class SparkFailedError(OttlaError):
    """Raised if Spark has failed, with the reason in one sentence."""


def failure_of(error: BaseException, log: str) -> tuple[SparkFailedError, bool]:
    """Convert an error of pyspark or py4j to a SparkFailedError. Also returns whether Spark's log
    contains further information."""
    from ottla.pipeline.one_sentence import sentence_of  # This import loads the client.

    # The note contains the line in the user's own file.
    place = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
    ours = sentence_of(error)
    if ours is not None:
        return SparkFailedError(place + ours), False
    cure = remedy_for(str(error))
    slip = slip_in(_text_of(error))
    if slip is not None:
        started = f" (started at {place.removesuffix(': ')})" if place else ""
        return SparkFailedError(f"{slip}{started} (Spark's log: {log})"), True
    return SparkFailedError(
        f"{place}{spark_message(error).removesuffix('.')}{cure and f'; {cure}'} "
        f"(Spark's log: {log})"
    ), True


def slip_in(text: str) -> str | None:
    """Return the file, line and error of a user's function that failed in a Spark worker. Returns
    None if the text contains no traceback of a user's function."""
    trace = _TRACEBACK.search(text)
    if trace is None:
        return None
    # The JVM's stack follows.
    rest = text[trace.end() :].partition("\n\tat ")[0]
    places = [(file, line) for file, line in _FRAME.findall(rest) if not _NOT_OWN.search(file)]
    errors = _ERROR_LINE.findall(rest)
    if not places or not errors:
        return None
    file, line = places[-1]
    return f"{file}, line {line}: {errors[-1].strip()}"


def remedy_for(text: str) -> str:
    """Return the remedy for a failure of Spark's workers, or an empty text if no pattern
    matches."""
    return next((cure for pattern, cure in CURES if re.search(pattern, text)), "")


def spark_message(error: BaseException) -> str:
    """Return the message of an error from pyspark or py4j as one sentence."""
    return first_words(_text_of(error)) or type(error).__name__


def first_words(text: str) -> str:
    """Return the essential line of an error text: the last line of a Python traceback, or else the
    first line without Spark's prefixes."""
    trace = _TRACEBACK.search(text)
    if trace is not None:
        last = _LAST_OF_TRACEBACK.findall(text[trace.end() :])
        if last:
            return str(last[-1]).strip()
    text = text.partition("JVM stacktrace:")[0].strip()
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    while (shorter := _WRAPPED.sub("", line, count=1)) != line and shorter:
        line = shorter
    return _STATE.sub("", line).strip()


def _text_of(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:
        # str() would request the whole stack trace from the JVM.
        return str(java.toString())
    return str(error)
