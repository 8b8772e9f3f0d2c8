"""Starts Spark for a command: finds a Java installation, redirects Spark's output, registers
Ottla's data source, and stops all processes in the end.

The JVM gets a process group of its own, so that Ctrl-C reaches only the command, which then stops
its queries in order. The JVM ends when the command's end of its pipe is closed, even after kill -9.
The output of Spark, its JVM and its Python workers is written to one file, which is kept if the
session failed.
"""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.pipeline.java import find_java
from ottla.pipeline.run.package_zip import NAME, make_package_zip
from ottla.pipeline.run.quiet_exit import PY4J_MODULES
from ottla.pipeline.run.spark_errors import failure_of, first_words, spark_message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local"
STOP_SECONDS_MAX = 20.0
"""Maximum time in seconds in which the JVM of Spark must end before it is killed. All of its data
has been written by then."""
CONTEXT_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Names of the loggers of pyspark that log an error with Java's stack trace, in addition to the
exception."""
COMPLAINTS = ("Invalid ", "Unrecognized ", "Error", "Exception")
"""Words that mark an error line in the output of a JVM that fails before Spark starts."""
DEFAULTS = {
    "spark.ui.enabled": "false",  # The UI would open a port for each command.
    "spark.sql.session.timeZone": "UTC",  # Timestamps are shown in UTC.
    # Progress is read while the query runs.  A line for each batch would flood Spark's log.
    "spark.sql.streaming.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a Spark session that a command opens."""

    name: str
    """Name of the Spark application, as shown by the cluster's web UI."""
    master: str = "local[*]"
    """Spark's master URL: local[*], spark://host:7077, yarn, k8s://…"""
    conf: tuple[tuple[str, str], ...] = ()
    """Spark settings of the user, which take precedence over the settings that Ottla chooses."""
    log: Path | None = None
    """Path of the file for Spark's output, or None for a file in the temporary directory."""
    kept_open: tuple[int, ...] = ()
    """File descriptors that the JVM inherits. They keep locks on the output, to which the JVM may
    still write for a moment after the command was killed."""

    @property
    def is_local(self) -> bool:
        """True if the executors are threads of the driver, which can import the driver's
        modules."""
        return self.master.partition("[")[0] == LOCAL


@contextmanager
def open_session(options: SessionOptions) -> Iterator["SparkSession"]:
    """Start Spark, yield its session with `format("ottla")` registered, and stop it at the end of
    the `with` block.

    Raises ConfigError if pyspark, a suitable Java or the given master does not exist, and
    SparkFailedError for errors of Spark. Each message is one sentence.
    """
    require_pyspark()
    os.environ["JAVA_HOME"] = find_java().home
    set_python(options, os.environ)
    log = options.log or new_log()
    is_log_kept = options.log is not None
    with tempfile.TemporaryDirectory(prefix="ottla-spark-") as directory:
        session, gateway = _start(options, log, Path(directory))
        is_interrupted = False
        try:
            yield session
        except spark_exceptions() as error:
            # The text of the error is read from the JVM, which is still running at this point.
            failure, tells_more = failure_of(error, str(log))
            is_log_kept |= tells_more
            raise failure from None
        except KeyboardInterrupt:
            # An interrupt may leave a call to the JVM unfinished.  The JVM can then not be called
            # any longer.
            is_interrupted = True
            raise
        finally:
            _end(None if is_interrupted else session, gateway)
            if not is_log_kept:
                log.unlink(missing_ok=True)


def spark_exceptions() -> tuple[type[Exception], ...]:
    """Return the exception classes that pyspark, and its connection to the JVM, may raise."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def require_pyspark() -> None:
    """Raise ConfigError if pyspark, from the extra [spark], is not installed."""
    try:
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            error.name or "pyspark", f"is not installed; install it with: {install_hint('spark')}"
        ) from None


def set_python(options: SessionOptions, environ: Any) -> None:
    """Configure Spark's workers to run this Python, unless the user has set another Python or the
    workers are remote."""
    environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_local:
        # Spark's default is any `python3` on PATH, which may lack our packages.
        environ["PYSPARK_PYTHON"] = sys.executable


def settings_of(options: SessionOptions, package_zip: Path | None) -> dict[str, str]:
    """Return all settings for the Spark session. The user's settings override Ottla's settings."""
    settings = {
        **DEFAULTS,
        "spark.app.name": options.name,
        "spark.master": options.master,
        **dict(options.conf),
    }
    if package_zip is not None:
        before = settings.get("spark.submit.pyFiles")
        settings["spark.submit.pyFiles"] = ",".join(filter(None, [before, str(package_zip)]))
    return settings


def new_log() -> Path:
    """Create an empty file for Spark's output, and return its path."""
    handle, name = tempfile.mkstemp(prefix="ottla-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def first_complaint(log: Path) -> str:
    """Return the first error line in the JVM's output, or an empty text if the output contains no
    such line."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    loud = (line for line in lines if any(word in line for word in COMPLAINTS))
    return first_words(next(loud, "").strip())


def _start(options: SessionOptions, log: Path, directory: Path) -> tuple["SparkSession", Any]:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    package_zip = None if options.is_local else make_package_zip(directory / NAME)
    _quieten()
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings_of(options, package_zip).items()))
    gateway: Any = None
    try:
        with log.open("ab") as output:
            how = {
                "stdout": output,
                "stderr": output,
                "start_new_session": True,
                "pass_fds": options.kept_open,
            }
            gateway = launch_gateway(conf, how)  # type: ignore[no-untyped-call]
        session = SparkSession(SparkContext(conf=conf, gateway=gateway))
    except spark_exceptions() as error:
        why = (
            spark_message(error)
            if gateway is not None
            else first_complaint(log) or spark_message(error)
        )
        _end_jvm(gateway)
        raise ConfigError("--master", f"{options.master}: {why} (Spark's log: {log})") from None
    from ottla.pipeline import register

    register(session)
    return session, gateway


def _quieten() -> None:
    """Suppress stack traces that pyspark logs in addition to the exception that it raises."""
    for name in CONTEXT_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # py4j logs every call that fails or is interrupted, with the root logger.
    logging.getLogger().addFilter(lambda record: record.module not in PY4J_MODULES)


def _end(session: "SparkSession | None", gateway: Any) -> None:
    """Stop Spark if its JVM can still be called, and wait until the JVM has ended.  Errors of Spark
    are ignored."""
    if session is not None:
        with suppress(*spark_exceptions(), OSError):
            session.stop()
            gateway.shutdown()
    _end_jvm(gateway)


def _end_jvm(gateway: Any) -> None:
    import subprocess

    from pyspark import SparkContext

    if gateway is None:
        return
    # Another session in this process must not call the JVM that has ended.
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
