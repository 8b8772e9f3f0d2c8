"""What comes before Spark: checks that need no JVM, and the wait for it, shown on a terminal."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ottla.cli.terminal import draw, is_watched, wipe
from ottla.model.errors import ConfigError, OttlaError
from ottla.pipeline.run.session import SessionOptions

MASTER_PORT = 7077
MASTER_ANSWER_TIMEOUT_S = 2.0
"""Spark itself tries for a minute."""
FILES = ("spark.jars", "spark.submit.pyFiles", "spark.archives")
REDRAW_S = 1.0


def check_session(options: SessionOptions) -> None:
    """Raise ConfigError for a file of --jars, --py-files or --archives that is not there.

    OttlaError if no address of a standalone master answers.
    """
    for key, text in options.conf:
        if key in FILES:
            for name in filter(None, text.split(",")):
                _check_file(key, name)
    if options.master.startswith("spark://"):
        _check_master(options.master)


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
    """Show, on a terminal, that Spark starts and for how long already."""
    if not is_watched():
        yield
        return
    done = threading.Event()
    began_at = time.monotonic()

    def body() -> None:
        while not done.is_set():
            draw(f"starting Spark ({master})… {time.monotonic() - began_at:.0f} s")
            done.wait(REDRAW_S)
        wipe()

    thread = threading.Thread(target=body, name="spark start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
