"""Interface of remote procedures: servers and calls.

The interface has two implementations: `RpcRuntime` (rpc_driver.py) uses gRPC, and a simulated
network is used in tests. Both pass the tests in `tests.jepsen.world.rpc_conformance`.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ottla.model.settings.security.tls import TlsConfig
from ottla.rpc.caller import host_of
from ottla.rpc.method import MethodHandler, Request, Response, RpcMethod


class RpcPeer(Protocol):
    """Interface of a peer at one address, whose methods can be called. The peer may be
    unreachable."""

    async def call(
        self,
        method: RpcMethod[Request, Response],
        request: Request,
        *,
        deadline_ms: int,
    ) -> Response:
        """Call a method of the peer, and return the response.

        Raises RefusedError with the error code of the peer, or with NETWORK_EXCEPTION or
        REQUEST_TIMED_OUT.
        """
        ...


class Rpc(Protocol):
    """Interface to the remote procedures of one process: its servers and its calls."""

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Iterable[MethodHandler[Any, Any]],
        *,
        tls: TlsConfig | None = None,
        caller_host: Callable[[str], str] = host_of,
    ) -> int:
        """Serve the methods of `handlers` at an address. Returns the port, which the system chooses
        if `port` is 0.

        With `tls`, callers must present certificates. `caller_host` derives the host of a caller
        from gRPC's description of its connection. Raises ConfigError if the address is in use.
        """
        ...

    async def channel(self, address: str) -> RpcPeer:
        """Return the peer at an address. The caller can then call its methods. The address has the
        form that `join_address` returns."""
        ...

    async def stop_serving(self) -> None:
        """Cancel incoming calls in progress and stop listening. Outgoing calls continue to work."""
        ...


class OpenRpc(Protocol):
    """Interface of a function that opens the remote procedures of a process for the duration of an
    `async with` block."""

    def __call__(self, tls: TlsConfig | None = None, /) -> AbstractAsyncContextManager[Rpc]:
        """Open the remote procedures of a process. With `tls`, outgoing calls are encrypted and
        present the certificate in `tls`."""
        ...


def join_address(host: str, port: int) -> str:
    """Return an address in gRPC's form. `unix:/path` and `unix-abstract:name` are returned
    unchanged."""
    if host.startswith(("unix:", "unix-abstract:")):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"
