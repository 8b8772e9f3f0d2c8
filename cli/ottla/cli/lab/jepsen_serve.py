"""`ottla jepsen serve`: the store in a browser, for people at this machine alone."""

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ottla.cli.terminal import note, say

HOST = "127.0.0.1"
"""Histories and logs are readable on this machine only."""


READABLE = (".jsonl", ".log", ".before", ".txt", ".json")
TEXT = "text/plain; charset=utf-8"


class Pages(SimpleHTTPRequestHandler):
    """The files below the store, read-only; browsers display text files."""

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Return the media type of a file."""
        return TEXT if str(path).endswith(READABLE) else super().guess_type(path)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a line a request would flood the terminal."""


def open_server(store: Path, port: int) -> ThreadingHTTPServer:
    """Open the server on a port of this machine; 0: any free one."""
    return ThreadingHTTPServer((HOST, port), partial(Pages, directory=str(store)))


def serve(store: Path, port: int) -> int:
    """Write the matrix page again and serve until interrupted."""
    from ottla.jepsen.report.write import write_matrix

    write_matrix(store)
    with open_server(store, port) as server:
        say(f"http://{HOST}:{server.server_address[1]}/", is_flushed=True)
        note("Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0
