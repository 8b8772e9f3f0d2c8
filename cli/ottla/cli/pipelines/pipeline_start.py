"""Checks options before Spark starts, without a JVM, and shows the progress of Spark's start on a
terminal."""

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from ottla.cli.terminal import draw, is_watched, wipe
from ottla.client.network.address_check import check_address
from ottla.model.errors import ConfigError, OttlaError
from ottla.pipeline.run.session import SessionOptions
from ottla.pipeline.run.watching import in_a_thread

MASTER_PORT = 7077
MASTER_ANSWER_TIMEOUT_S = 2.0
"""Maximum seconds that the command waits for a response of the Spark master. Spark itself would try
for a minute."""
FILES = ("spark.jars", "spark.submit.pyFiles", "spark.archives")
REDRAW_S = 1.0
CLASSPATHS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
)
HADOOP = re.compile(r"hadoop-client-api-([\d.]+)\.jar")
JARS_GIVEN = re.compile(r"hadoop-aws|hadoop-cloud|\.jar\b|/")
"""Pattern of Spark settings that may add the S3 file system: a jar, a package or a directory of
jars."""


def check_session(options: SessionOptions) -> None:
    """Check the options of a Spark session.

    Raises ConfigError if a file of --jars, --py-files or --archives does not exist, and OttlaError
    if no address of a standalone master responds.
    """
    for key, text in options.conf:
        if key in FILES:
            for name in filter(None, text.split(",")):
                _check_file(key, name)
    if options.master.startswith("spark://"):
        _check_master(options.master)


def check_store(option: str, url: str, options: SessionOptions) -> None:
    """Raise ConfigError if an output is in S3 and Spark has no file system for S3.

    Without this check, Spark's error would only contain the name of a Java class. The check is
    skipped if SPARK_HOME is set, because the jar may be in any directory of that installation.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("s3", "s3n"):
        raise ConfigError(option, f"is {url!r}; Spark's name for S3 is s3a://")
    given = " ".join(text for key, text in options.conf if key in CLASSPATHS)
    if scheme != "s3a" or os.environ.get("SPARK_HOME") or JARS_GIVEN.search(given):
        return
    jars = pyspark_jars()
    if any(name.startswith("hadoop-aws-") for name in jars):
        return
    version = next((found[1] for name in jars if (found := HADOOP.match(name))), "VERSION")
    raise ConfigError(
        option,
        f"is {url!r}, and Spark's own jars have no S3; add "
        f"--packages org.apache.hadoop:hadoop-aws:{version}",
    )


def pyspark_jars() -> list[str]:
    """Return the names of the jars in the pyspark package, or an empty list if pyspark is not
    installed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    directory = Path(found.origin).parent / "jars"
    return sorted(os.listdir(directory)) if directory.is_dir() else []


def _check_file(key: str, name: str) -> None:
    path = name.partition("#")[0]
    if "://" in path or "*" in path or path.startswith(("local:", "file:")):
        return
    if not os.path.exists(path):
        raise ConfigError(key, f"there is no file {path}")


def _check_master(master: str) -> None:
    troubles = []
    for address in master.removeprefix("spark://").split(","):
        try:
            parts = urlsplit(f"//{address}")
            host, port = parts.hostname, parts.port or MASTER_PORT
        except ValueError:
            host, port = None, 0
        if not host:
            raise ConfigError("--master", f"is {master!r}; it must be spark://host:port")
        try:
            check_address(host, port)
            socket.create_connection((host, port), MASTER_ANSWER_TIMEOUT_S).close()
        except OSError as error:
            troubles.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise OttlaError(
        f"--master: no Spark master answers at {'; '.join(troubles)}; is it started, and reached "
        "from here?"
    )


@contextmanager
def start_shown(master: str) -> Iterator[None]:
    """Show a progress line with the elapsed time on a terminal while Spark starts. The line is
    erased at the end of the `with` block."""
    if not is_watched():
        yield
        return
    began_at = time.monotonic()

    def body(done: threading.Event) -> None:
        while not done.is_set():
            draw(f"starting Spark ({master})… {time.monotonic() - began_at:.0f} s")
            done.wait(REDRAW_S)
        wipe()

    with in_a_thread(body, name="spark start"):
        yield
