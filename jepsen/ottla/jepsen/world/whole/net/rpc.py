"""Remote procedure calls between simulated machines, in place of gRPC.

Requests and responses are the bytes that gRPC would carry, through the same codec and the same
handlers. Failures in transit are reported with gRPC's own statuses. A call may be carried out and
its response lost. `MachineRpc` implements the protocol `Rpc`.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any
from zlib import crc32

import trio

from ottla.jepsen.world.whole.net.network import Host, SimulatedNetwork
from ottla.model.errors import ConfigError, ErrorCode, ProtocolError, RefusedError
from ottla.model.settings.security.tls import TlsConfig
from ottla.rpc.caller import host_of
from ottla.rpc.method import MethodHandler, Request, Response, RpcMethod
from ottla.rpc.rpc_seam import join_address
from ottla.rpc.status import refusal_of


class RpcExchange:
    """The RPC servers on all simulated machines, by address."""

    def __init__(self) -> None:
        self.servers: dict[str, MachineRpc] = {}
        self.next_port = 20_000


class MachineRpc:
    """RPC server and client of one simulated process. Implements the protocol `Rpc`."""

    def __init__(
        self, network: SimulatedNetwork, exchange: RpcExchange, host: Host, nursery: trio.Nursery
    ) -> None:
        self.host = host
        self.network = network
        self.life = host.life
        self._exchange = exchange
        self._nursery = nursery
        self._context: Context = copy_context()
        self._handlers: dict[str, MethodHandler[Any, Any]] = {}
        self._is_serving = True

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Iterable[MethodHandler[Any, Any]],
        *,
        tls: TlsConfig | None = None,
        caller_host: Callable[[str], str] = host_of,
    ) -> int:
        """Serve the methods in `handlers` at an address, and return the port. `tls` and
        `caller_host` are ignored, since remote procedures are not encrypted in the simulator."""
        await trio.lowlevel.checkpoint()
        if not port:
            self._exchange.next_port += 1
            port = self._exchange.next_port
        address = join_address(host, port)
        known = self._exchange.servers.get(address)
        if known is not None and known.is_reachable:
            raise ConfigError("listeners", f"{address} cannot be opened; choose another port")
        self._handlers.update({handler.method.path: handler for handler in handlers})
        self._exchange.servers[address] = self
        return port

    async def channel(self, address: str) -> "MachinePeer":
        """Return a peer for calls to an address. No connection is opened."""
        return MachinePeer(self, self._exchange, address)

    async def stop_serving(self) -> None:
        """Cancel the RPC calls being served, and stop listening."""
        self._is_serving = False
        self._nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()

    @property
    def is_reachable(self) -> bool:
        """True if the process of this RPC server is running and responds."""
        return self._is_serving and self.host.is_up and self.host.life == self.life

    def take_up(self, call: "_Call") -> None:
        """Serve an RPC call in a task of this server's process."""
        # A new task gets its owner from the context in which it is started.
        self._context.run(self._nursery.start_soon, self._answer, call)

    async def _answer(self, call: "_Call") -> None:
        handler = self._handlers.get(call.path)
        if handler is None:
            call.reply(refusal_of("UNIMPLEMENTED", f"there is no {call.path}", None))
            return
        result: bytes | RefusedError = RefusedError(
            ErrorCode.NETWORK_EXCEPTION, "the server is closing"
        )
        try:
            with call.scope:
                result = await handler.answer_bytes(call.data)
        except RefusedError as refusal:
            result = RefusedError(refusal.code, refusal.message)
        except ProtocolError as error:
            result = RefusedError(ErrorCode.INVALID_REQUEST, error.where)
        finally:
            call.reply(result)


class MachinePeer:
    """Client for RPC calls to one address. Implements the protocol `RpcPeer`."""

    def __init__(self, rpc: MachineRpc, exchange: RpcExchange, address: str) -> None:
        self._rpc = rpc
        self._exchange = exchange
        self._address = address

    async def call(
        self, method: RpcMethod[Request, Response], request: Request, *, deadline_ms: int
    ) -> Response:
        """Call a method of the RPC server at the peer's address, and return the response. Raises
        RefusedError with the peer's error code, NETWORK_EXCEPTION or REQUEST_TIMED_OUT."""
        target = self._address.rpartition(":")[0].strip("[]")
        call = _Call(
            self._rpc.network,
            caller=self._rpc.host,
            target=self._rpc.network.host(target),
            path=method.path,
            data=request.SerializeToString(),
        )
        call.launch(lambda: self._exchange.servers.get(self._address))
        with trio.move_on_after(deadline_ms / 1000):
            try:
                await call.is_done.wait()
            finally:
                call.leave()
        if call.result is None:
            raise refusal_of("DEADLINE_EXCEEDED", "Deadline Exceeded", None)
        if isinstance(call.result, RefusedError):
            raise call.result
        return method.decode_response(call.result)


class _Call:
    """One RPC call between machines. Its request is in flight or being served, or its response is
    in flight."""

    __slots__ = (
        "_caller",
        "_has_left",
        "_is_broken",
        "_network",
        "_target",
        "data",
        "is_done",
        "path",
        "result",
        "scope",
    )

    def __init__(
        self, network: SimulatedNetwork, *, caller: Host, target: Host, path: str, data: bytes
    ) -> None:
        self._network = network
        self._caller = caller
        self._target = target
        self._has_left = False
        self._is_broken = False
        self.path = path
        self.data = data
        self.scope = trio.CancelScope()
        self.is_done = trio.Event()
        self.result: bytes | RefusedError | None = None

    def launch(self, find: "Any") -> None:
        """Send the request of the RPC call to the server that `find` returns."""
        self._caller.endings[self._cancel_there] = None
        if self._network.breaks():
            self._fail("Connection reset by peer")
            return

        def arrive() -> None:
            server: MachineRpc | None = find()
            if self._has_left or self._is_broken or self._target.is_silent:
                return
            if server is None or not server.is_reachable:
                self._send_back(refusal_of("UNAVAILABLE", "failed to connect", None))
                return
            self._trace(self._caller, self._target, self.data)
            self._target.endings[self._fail_from_there] = None
            server.take_up(self)

        self._network.send(self._caller.name, self._target.name, arrive)

    def reply(self, result: bytes | RefusedError) -> None:
        """Send the response to the RPC call (used by the server)."""
        self._target.endings.pop(self._fail_from_there, None)
        if self._network.breaks():
            result = refusal_of("UNAVAILABLE", "Connection reset by peer", None)
        self._send_back(result)

    def leave(self) -> None:
        """Stop waiting for the response to the RPC call. If it has not arrived, cancel the call at
        the server."""
        self._has_left = True
        self._caller.endings.pop(self._cancel_there, None)
        if not self.is_done.is_set():
            self._cancel_there()

    def _send_back(self, result: bytes | RefusedError) -> None:
        def arrive() -> None:
            if not self._has_left and not self.is_done.is_set():
                data = result if isinstance(result, bytes) else result.message.encode()
                self._trace(self._target, self._caller, data)
                self.result = result
                self.is_done.set()

        self._network.send(self._target.name, self._caller.name, arrive)

    def _fail(self, why: str) -> None:
        self._is_broken = True
        self.result = refusal_of("UNAVAILABLE", why, None)
        self.is_done.set()

    def _fail_from_there(self) -> None:
        self._target.endings.pop(self._fail_from_there, None)
        self._send_back(refusal_of("UNAVAILABLE", "Socket closed", None))

    def _cancel_there(self) -> None:
        self._has_left = True
        self._caller.endings.pop(self._cancel_there, None)
        self._network.send(self._caller.name, self._target.name, self.scope.cancel)

    def _trace(self, source: Host, target: Host, data: bytes) -> None:
        now_us = int(trio.current_time() * 1_000_000)
        self._network.trace.add(now_us, source.name, target.name, self.path, len(data), crc32(data))


@asynccontextmanager
async def open_machine_rpc(
    network: SimulatedNetwork, exchange: RpcExchange, host: Host
) -> AsyncIterator[MachineRpc]:
    """Open and yield the RPC server and client of a simulated process. The end of the `async with`
    block closes them."""
    async with trio.open_nursery() as outer:
        rpc = await outer.start(_hold, network, exchange, host)
        try:
            yield rpc
        finally:
            outer.cancel_scope.cancel()


async def _hold(
    network: SimulatedNetwork,
    exchange: RpcExchange,
    host: Host,
    task_status: trio.TaskStatus[MachineRpc],
) -> None:
    """Run the tasks that serve RPC calls for a process. They are separate from the task that opened
    the server."""
    async with trio.open_nursery() as nursery:
        task_status.started(MachineRpc(network, exchange, host, nursery))
        await trio.sleep_forever()
