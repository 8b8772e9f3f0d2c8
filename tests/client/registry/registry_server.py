"""A schema registry over HTTP on loopback, for tests: a store of schemas, and planned failures."""

import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ottla.client.registry.rest_store import RestStore
from ottla.client.registry.schema_registry import RegistryCall, RegistryReply


class RegistryServer:
    """A running registry."""

    def __init__(self, store: RestStore) -> None:
        self.store = store
        self.asked: list[str] = []
        """Method, path and query of each request."""
        self.headers: list[dict[str, str]] = []
        """Headers of each request, by their names in lower case."""
        self.planned: deque[RegistryReply | None] = deque()
        """Responses to the next requests in place of the store's; None closes the connection."""
        self.url = ""
        self.on_request: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def reply(
        self, method: str, target: str, headers: dict[str, str], body: bytes | None
    ) -> RegistryReply | None:
        """Return the response to one request."""
        self.on_request()
        with self._lock:
            self.asked.append(f"{method} {target}")
            self.headers.append(headers)
            if self.planned:
                return self.planned.popleft()
            parts = urlsplit(target)
            assert method in ("GET", "POST")
            call = RegistryCall(
                "GET" if method == "GET" else "POST",
                parts.path,
                dict(parse_qsl(parts.query)),
                body,
            )
            return self.store.answer(call)


@contextmanager
def serve_registry(
    directory: Path, *, tls: ssl.SSLContext | None = None
) -> Iterator[RegistryServer]:
    """Serve the schemas of a directory on a free port, in threads of this process."""
    served = RegistryServer(RestStore(directory))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            size = self.headers.get("Content-Length")
            body = self.rfile.read(int(size)) if size else None
            headers = {name.lower(): content for name, content in self.headers.items()}
            reply = served.reply(self.command, self.path, headers, body)
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        served.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        # The default is to look for the end twice a second, which a test would wait for.
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
