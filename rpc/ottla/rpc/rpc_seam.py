"""The seam through which remote procedures come in: answering them, and calling them.

Exactly two implementations exist: `RpcRuntime` (rpc_driver.py), which is gRPC, and the
deterministic world's.  Both pass `ottla.jepsen.world.rpc_conformance`.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from ottla.model.settings.tls import TlsConfig
from ottla.rpc.method import MethodHandler, Request, Response, RpcMethod


class RpcPeer(Protocol):
    """Whoever answers at one address, there or not."""

    async def call(
        self,
        method: RpcMethod[Request, Response],
        request: Request,
        *,
        deadline_ms: int,
    ) -> Response:
        """Call the peer; RefusedError with its code, NETWORK_EXCEPTION or REQUEST_TIMED_OUT."""
        ...


class Rpc(Protocol):
    """One process's remote procedures, those it answers and those it calls."""

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Iterable[MethodHandler[Any, Any]],
        *,
        tls: TlsConfig | None = None,
    ) -> int:
        """Answer the methods at an address; return the port (useful when given 0).

        With `tls`, callers must show certificates.  ConfigError when the address is taken.
        """
        ...

    async def channel(self, address: str) -> RpcPeer:
        """Return whoever answers at an address, made by `join_address`."""
        ...

    async def stop_serving(self) -> None:
        """Cancel what is being answered and listen no longer; calls still go out."""
        ...


class OpenRpc(Protocol):
    """Opens a process's remote procedures for the length of a `with`."""

    def __call__(self, tls: TlsConfig | None = None, /) -> AbstractAsyncContextManager[Rpc]:
        """Open them; with `tls`, calls go out encrypted and show its certificate."""
        ...


def join_address(host: str, port: int) -> str:
    """Return gRPC's form of an address; `unix:/path` stands for itself."""
    if host.startswith("unix:"):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host or '0.0.0.0'}:{port}"
