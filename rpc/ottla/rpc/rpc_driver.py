"""gRPC for trio: servers whose handlers are trio functions, channels whose calls are awaited.

grpc.aio runs on one dedicated asyncio thread; this is the one place where it meets trio.  Every
call has a deadline, every request the size limit of its method and every method a bound on the
calls that it answers at once; a caller that goes away cancels its handler, and
the other way round.  A lost peer is dialled again with back-off by the channel itself.

Where certificates are given, both ends show theirs (mutual TLS); new files hold for connections
made after they were read, and those that are open go on.
"""

import asyncio
import logging
import os
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import trio

from ottla.model.errors import ConfigError, ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import RPC_MESSAGE_BYTES_MAX
from ottla.model.settings.tls import TlsConfig
from ottla.rpc.asyncio_thread_driver import AsyncioThread, open_asyncio_thread
from ottla.rpc.caller import UNKNOWN_CALLER, Caller, caller_of
from ottla.rpc.method import MethodHandler, Request, Response, RpcMethod
from ottla.rpc.node_certificates_driver import NodeCertificates
from ottla.rpc.rpc_seam import join_address
from ottla.rpc.status import ERROR_CODE_KEY, refusal_of

RECONNECT_BACKOFF_MS_FIRST = 5
"""A broker may start some ms before the controller it starts with."""
RECONNECT_BACKOFF_MS_MAX = 300
"""A restarted peer is found within this; lower dials a dead one too often."""

CONNECT_TIMEOUT_MS = 2_000
"""How long one attempt to connect may take; lower never reaches a far peer."""

KEEPALIVE_MS = 10_000
"""How often an idle connection is probed, so that a peer lost without a FIN is noticed."""

STREAMS_MAX = 1_024
"""Calls under way on one connection.  Less makes the calls of a busy broker wait for each other;
each may hold a request of its method's size."""

CONNECTIONS_MAX = 5_000
"""Connections of one server at once, for each of its addresses; those above it are closed.  A
cluster has a few for each of its nodes; each costs 20 KB, 45 KB once it has been closed until the
allocator gives it back.  Lower lets fewer idle connections of strangers keep nodes out."""

HANDSHAKE_MS_MAX = 5_000
"""How long a caller may take to show its certificate, or its first HTTP/2 frame.  gRPC's default
is 120 s: idle connections of strangers, who come back, would keep a restarting node out.  Lower
cuts off callers on busy machines, who call again."""

GRPC_LOGGER = "grpc._cython.cygrpc"
LOST_CALLER = "ExecuteBatchError raised in core by servicer method"

ENVELOPE_BYTES = 1_024
"""What gRPC may add to a message before it counts it."""

BASE_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", RPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", RPC_MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
    ("grpc.keepalive_permit_without_calls", 1),
)
CHANNEL_OPTIONS = (
    *BASE_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_FIRST),
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MAX),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
SERVER_OPTIONS = (
    *BASE_OPTIONS,
    ("grpc.so_reuseport", 0),  # a taken port must fail, not share its calls with a stranger
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
)


OLD_CHANNEL_GRACE_S = 60.0
"""How long calls under way may use a connection whose certificate was replaced: any long poll."""


class RpcChannel:
    """Calls to one address; it dials when first used, and again whenever the peer is lost."""

    def __init__(
        self, thread: AsyncioThread, address: str, certificates: NodeCertificates | None
    ) -> None:
        """Make the channel (on the asyncio loop)."""
        self.address = address
        self._thread = thread
        self._certificates = certificates
        self._certificates_version = 0 if certificates is None else certificates.version
        self._channel = _make_channel(address, certificates)
        self._callables: dict[str, Any] = {}
        self._old: set[asyncio.Task[None]] = set()

    async def call(
        self,
        method: RpcMethod[Request, Response],
        request: Request,
        *,
        deadline_ms: int,
    ) -> Response:
        """Call the peer; RefusedError with its code, NETWORK_EXCEPTION or REQUEST_TIMED_OUT."""
        path, data = method.path, request.SerializeToString()
        try:
            answer = await self._thread.run(partial(self._call, path, data, deadline_ms / 1000))
        except ConnectionAbortedError as error:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, "the runtime is closing") from error
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from None
        return method.decode_response(answer)

    async def close(self) -> None:
        """Hang up; calls under way fail."""
        await self._thread.run(self.close_now)

    async def close_now(self) -> None:
        """Hang up (on the asyncio loop)."""
        for task in self._old:
            task.cancel()
        await asyncio.gather(*self._old, return_exceptions=True)
        await self._channel.close(None)

    def _renew(self, certificates: NodeCertificates) -> None:
        """Dial with the certificates that hold now; calls under way end where they are."""
        version = certificates.look()
        if version == self._certificates_version:
            return
        self._certificates_version = version
        old, self._channel = self._channel, _make_channel(self.address, certificates)
        self._callables.clear()
        task = asyncio.get_running_loop().create_task(old.close(OLD_CHANNEL_GRACE_S))
        self._old.add(task)
        task.add_done_callback(self._old.discard)

    async def _call(self, path: str, data: bytes, timeout_s: float) -> bytes:
        if self._certificates is not None:
            self._renew(self._certificates)
        callable_ = self._callables.get(path)
        if callable_ is None:
            callable_ = self._callables[path] = self._channel.unary_unary(path)
        answer: bytes = await callable_(data, timeout=timeout_s)
        return answer


class RpcRuntime:
    """The process's gRPC: its servers and its channels, all on one asyncio thread."""

    def __init__(
        self,
        thread: AsyncioThread,
        *,
        connections_max: int,
        certificates: NodeCertificates | None = None,
    ) -> None:
        self._thread = thread
        self._connections_max = connections_max
        self._certificates = certificates
        """For calls to others."""
        self._nursery: trio.Nursery | None = None
        """Holds the tasks that answer; None while nothing is answered."""
        self._servers: list[grpc.aio.Server] = []
        self._channels: dict[str, RpcChannel] = {}
        self._call_counts: Counter[str] = Counter()
        """Calls under way by path (on the asyncio loop)."""

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Iterable[MethodHandler[Any, Any]],
        *,
        tls: TlsConfig | None = None,
    ) -> int:
        """Listen on an address and answer the methods; return the port (useful when given 0).

        With `tls`, callers show certificates, and `admit` of the handlers learns whose.
        """
        answering = _Answering(tuple(handlers), None if tls is None else NodeCertificates(tls))
        try:
            return await self._thread.run(
                partial(self._start_server, join_address(host, port), answering)
            )
        except RuntimeError as error:
            raise ConfigError(
                "listeners",
                f"{join_address(host, port)} cannot be opened (is it in use?); choose another port",
            ) from error

    async def channel(self, address: str) -> RpcChannel:
        """Return the channel to an address (`host:port` or `unix:/path`), made when new."""
        known = self._channels.get(address)
        if known is None:
            made = await self._thread.run(partial(self._open_channel, address))
            known = self._channels.setdefault(address, made)
        return known

    async def _open_channel(self, address: str) -> RpcChannel:
        return RpcChannel(self._thread, address, self._certificates)

    async def stop_serving(self) -> None:
        """Cancel what is being answered and listen no longer; channels still serve."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await self._thread.run(self._stop_servers)

    async def close(self) -> None:
        """Stop serving and hang up everywhere."""
        await self.stop_serving()
        await self._thread.run(self._close_channels)

    async def hold_answers(self, task_status: trio.TaskStatus[None]) -> None:
        """Hold the tasks that answer, apart from whoever opened the runtime."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _start_server(self, address: str, answering: "_Answering") -> int:
        largest = max((one.method.request_bytes_max for one in answering.handlers), default=0)
        options = dict(SERVER_OPTIONS)
        options["grpc.max_receive_message_length"] = largest + ENVELOPE_BYTES
        options["grpc.max_allowed_incoming_connections"] = self._connections_max
        logging.getLogger(GRPC_LOGGER).addFilter(is_no_lost_caller)
        server = grpc.aio.server(options=tuple(options.items()))
        if answering.certificates is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, answering.certificates.server_credentials())
        server.add_generic_rpc_handlers((_GenericHandler(self, answering),))
        await server.start()
        self._servers.append(server)
        return port

    async def _serve_call(
        self,
        handler: MethodHandler[Any, Any],
        answering: "_Answering",
        data: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],
    ) -> bytes:
        path = handler.method.path
        incoming = _Incoming(self._thread, handler, data, answering.caller_of(context))
        if self._call_counts[path] >= handler.method.calls_max:
            incoming.resolve(BUSY)
        else:
            self._thread.post_to_trio(self._take_up, incoming)
        self._call_counts[path] += 1
        try:
            result = await incoming.result
        except asyncio.CancelledError:
            self._thread.post_to_trio(incoming.cancel)
            raise
        finally:
            self._call_counts[path] -= 1
        if isinstance(result, RefusedError):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                result.message,
                ((ERROR_CODE_KEY, str(int(result.code))),),
            )
        return result

    def _take_up(self, incoming: "_Incoming") -> None:
        if self._nursery is None:
            self._thread.post_to_asyncio(incoming.resolve, CLOSING)
        else:
            self._nursery.start_soon(incoming.answer)

    async def _stop_servers(self) -> None:
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop(None) for server in servers))

    async def _close_channels(self) -> None:
        await asyncio.gather(*(channel.close_now() for channel in self._channels.values()))


class _Answering:
    """What one listener answers, and how it knows its callers."""

    __slots__ = ("certificates", "handlers")

    def __init__(
        self,
        handlers: tuple[MethodHandler[Any, Any], ...],
        certificates: NodeCertificates | None,
    ) -> None:
        self.handlers = handlers
        self.certificates = certificates

    def caller_of(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> Caller:
        """Return who calls, as the mapping rules of the listener name the certificate."""
        if self.certificates is None:
            return UNKNOWN_CALLER
        rules = self.certificates.config.principal_rules
        return caller_of(context.peer(), context.auth_context(), rules.user_of)


class _GenericHandler(grpc.GenericRpcHandler):
    """Finds the handler of a path."""

    def __init__(self, runtime: RpcRuntime, answering: _Answering) -> None:
        self._rows: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            handler.method.path: grpc.unary_unary_rpc_method_handler(
                partial(runtime._serve_call, handler, answering)
            )
            for handler in answering.handlers
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the row of a path; gRPC answers UNIMPLEMENTED when there is none."""
        return self._rows.get(handler_call_details.method)


class _Incoming:
    """One call being answered by a trio task; the asyncio side waits on its `result`."""

    __slots__ = ("_caller", "_data", "_handler", "_scope", "_thread", "result")

    def __init__(
        self,
        thread: AsyncioThread,
        handler: MethodHandler[Any, Any],
        data: bytes,
        caller: Caller,
    ) -> None:
        self._caller = caller
        self._thread = thread
        self._handler = handler
        self._data = data
        self._scope = trio.CancelScope()
        self.result: asyncio.Future[bytes | RefusedError] = thread.loop.create_future()

    async def answer(self) -> None:
        """Answer the call (on the trio loop)."""
        result: bytes | RefusedError = CLOSING
        try:
            with self._scope:
                result = await self._handler.answer_bytes(self._data, self._caller)
        except RefusedError as refusal:
            result = refusal
        except ProtocolError as error:
            result = RefusedError(ErrorCode.INVALID_REQUEST, error.where)
        finally:
            self._thread.post_to_asyncio(self.resolve, result)

    def cancel(self) -> None:
        """Stop answering: the caller is gone (on the trio loop)."""
        self._scope.cancel()

    def resolve(self, result: bytes | RefusedError) -> None:
        """Hand the result over (on the asyncio loop)."""
        if not self.result.done():
            self.result.set_result(result)


BUSY = RefusedError(ErrorCode.NETWORK_EXCEPTION, "the server has too many such calls")
CLOSING = RefusedError(ErrorCode.NETWORK_EXCEPTION, "the server is closing")


def _make_channel(address: str, certificates: NodeCertificates | None) -> grpc.aio.Channel:
    if certificates is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(
        address, certificates.channel_credentials(), options=CHANNEL_OPTIONS
    )


def _refusal(error: grpc.aio.AioRpcError) -> RefusedError:
    trailing = error.trailing_metadata()
    value = trailing.get(ERROR_CODE_KEY) if trailing is not None else None
    return refusal_of(error.code().name, error.details(), None if value is None else str(value))


def is_no_lost_caller(record: logging.LogRecord) -> bool:
    """Return whether gRPC logs anything but an answer whose caller had gone before it.

    That is no fault of anybody's: a caller's time was over, or its process ended.
    """
    return not record.getMessage().startswith(LOST_CALLER)


def default_connections_max() -> int:
    """Return how many connections leave the rest of the process as many descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(CONNECTIONS_MAX, descriptors // 2))


@asynccontextmanager
async def open_rpc_runtime(
    tls: TlsConfig | None = None, *, connections_max: int | None = None
) -> AsyncIterator[RpcRuntime]:
    """Run gRPC for the length of the `with`; None leaves the bound to the descriptors there are.

    With `tls`, calls go out encrypted and show its certificate.
    """
    certificates = None if tls is None else NodeCertificates(tls)
    connections_max = connections_max or default_connections_max()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # or it tells stderr of every goodbye
    async with open_asyncio_thread() as thread, trio.open_nursery() as nursery:
        runtime = RpcRuntime(thread, connections_max=connections_max, certificates=certificates)
        await nursery.start(runtime.hold_answers)
        try:
            yield runtime
        finally:
            with trio.CancelScope(shield=True):
                await runtime.close()
