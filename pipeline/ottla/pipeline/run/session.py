"""Starts Spark for a command: found, quiet, able to read topics, and ended with all it began.

The JVM gets a process group of its own, so that Ctrl-C reaches the command alone, which then ends
its queries in good order; the JVM ends when the command's end of its pipe is gone, also by kill -9.
What Spark, its JVM and its Python workers say goes into one file, which is kept if the session
failed.
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
from ottla.pipeline.run.spark_errors import failure_of, first_words, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local"
STOP_SECONDS_MAX = 20.0
"""How long the JVM may take to end before it is killed; it has nothing left to write then."""
PY4J_MODULES = {"java_gateway", "clientserver"}
COMPLAINTS = ("Invalid ", "Unrecognized ", "Error", "Exception")
"""Words in the lines with which a JVM gives up before Spark begins."""
DEFAULTS = {
    "spark.ui.enabled": "false",  # a port per command, which nobody asked for
    "spark.sql.session.timeZone": "UTC",  # timestamps are shown as what they are
    # Who wants progress looks while the query runs; a line a batch is too much for Spark's log.
    "spark.sql.streaming.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What Spark is started with."""

    name: str
    """The application's name, as a cluster's pages show it."""
    master: str = "local[*]"
    """Spark's master URL: local[*], spark://host:7077, yarn, k8s://…"""
    conf: tuple[tuple[str, str], ...] = ()
    """Spark settings of the user, which win over ours."""
    log: Path | None = None
    """Where Spark's own words go; None for a file in the temporary directory."""
    kept_open: tuple[int, ...] = ()
    """File descriptors that the JVM inherits: locks on what it writes, which it may do for a
    moment longer than a command that is killed."""

    @property
    def is_local(self) -> bool:
        """Whether the executors are threads of the driver: whatever it imports, they can."""
        return self.master.partition("[")[0] == LOCAL


@contextmanager
def open_session(options: SessionOptions) -> Iterator["SparkSession"]:
    """Start Spark, yield its session with `format("ottla")` registered, and end it.

    ConfigError where there is no pyspark, no Java or no such master, SparkFailedError for what
    Spark raises meanwhile: one sentence each.
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
            # Its text comes from the JVM, which is still there.
            failure, tells_more = failure_of(error, str(log))
            is_log_kept |= tells_more
            raise failure from None
        except KeyboardInterrupt:
            # Perhaps during a call; then nothing more can be said to the JVM.
            is_interrupted = True
            raise
        finally:
            _end(None if is_interrupted else session, gateway)
            if not is_log_kept:
                log.unlink(missing_ok=True)


def spark_exceptions() -> tuple[type[Exception], ...]:
    """Return what pyspark raises, of itself and of the way to its JVM."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def require_pyspark() -> None:
    """Refuse to go on without what the extra [spark] brings."""
    try:
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            error.name or "pyspark", f"is not installed; install it with: {install_hint('spark')}"
        ) from None


def set_python(options: SessionOptions, environ: Any) -> None:
    """Have workers run this very Python, unless the user named one or they are elsewhere."""
    environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_local:
        # Spark's own default is whatever `python3` happens to be, which lacks our packages.
        environ["PYSPARK_PYTHON"] = sys.executable


def settings_of(options: SessionOptions, package_zip: Path | None) -> dict[str, str]:
    """Return every setting Spark is given: ours, then the user's over them."""
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
    """Return a new file for what Spark says."""
    handle, name = tempfile.mkstemp(prefix="ottla-spark-", suffix=".log")
    os.close(handle)
    return Path(name)


def first_complaint(log: Path) -> str:
    """Return the first line in which the JVM said what is wrong; nothing when it did not."""
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
        why = told(error) if gateway is not None else first_complaint(log) or told(error)
        _end_jvm(gateway)
        raise ConfigError("--master", f"{options.master}: {why} (Spark's log: {log})") from None
    from ottla.pipeline import register

    register(session)
    return session, gateway


def _quieten() -> None:
    """Have nobody print, with stacks, what is raised as well."""
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    # py4j tells the root logger of every call that fails or is interrupted.
    logging.getLogger().addFilter(lambda record: record.module not in PY4J_MODULES)


def _end(session: "SparkSession | None", gateway: Any) -> None:
    """Stop Spark, if it may be asked to, and wait for its JVM, whatever state they are in."""
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
    # Another session in this process must not talk to a JVM that is gone.
    SparkContext._gateway = None
    SparkContext._jvm = None
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
