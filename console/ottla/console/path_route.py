"""HTTP routes whose path parameters may be any value, because they match the undecoded path."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from ottla.console.links import PathPattern

Endpoint = Callable[[Request, Mapping[str, str]], Awaitable[Response]]


class PathRoute(BaseRoute):
    """HTTP route of one path and one method."""

    def __init__(self, path: str, method: str, endpoint: Endpoint) -> None:
        self._pattern = PathPattern.of(path)
        self._methods = {method, "HEAD"} if method == "GET" else {method}
        self._endpoint = endpoint

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether this route serves a request, and the values of its path parameters."""
        if scope["type"] != "http":
            return Match.NONE, {}
        raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
        values = self._pattern.match(raw.decode("ascii", "replace"))
        if values is None:
            return Match.NONE, {}
        is_served = scope["method"] in self._methods
        return (Match.FULL if is_served else Match.PARTIAL), {"path_values": values}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request of this route, or refuse its method."""
        if scope["method"] not in self._methods:
            response = Response(
                "method not allowed\n",
                405,
                {"allow": ", ".join(sorted(self._methods)), "content-type": "text/plain"},
            )
        else:
            response = await self._endpoint(Request(scope, receive, send), scope["path_values"])
        await response(scope, receive, send)

    def url_path_for(self, name: str, /, **_: Any) -> Any:
        """Raise an error, because pages use the function `link` to create addresses."""
        raise NotImplementedError(name)
