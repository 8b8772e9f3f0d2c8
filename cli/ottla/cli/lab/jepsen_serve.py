"""`ottla jepsen serve`: shows stored results of Jepsen runs in a browser on this machine only."""

import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ottla.cli.terminal import note, say

HOST = "127.0.0.1"
"""Loopback address at which the results of Jepsen runs are served. Histories and logs are readable
on this machine only."""


READABLE = (".jsonl", ".log", ".before", ".txt", ".json")
TEXT = "text/plain; charset=utf-8"


class Pages(SimpleHTTPRequestHandler):
    """HTTP handler that serves the stored files of Jepsen runs, read-only. Browsers display text
    files instead of downloading them."""

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        """Return the media type with which a stored file of a Jepsen run is served."""
        return TEXT if str(path).endswith(READABLE) else super().guess_type(path)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Discard the entry for the HTTP server's access log, because a line for each request would
        flood the terminal."""


def open_server(store: Path, port: int) -> ThreadingHTTPServer:
    """Open and return an HTTP server for the stored Jepsen results, on a TCP port of this machine;
    0 means any free port."""
    return ThreadingHTTPServer((HOST, port), partial(Pages, directory=str(store)))


def serve(store: Path, port: int) -> int:
    """Rewrite the page with the matrix of Jepsen results, then serve the stored results until
    interrupted. Returns the exit code."""
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
