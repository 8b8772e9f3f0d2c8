"""gRPC for trio: servers whose handlers are trio functions, and channels whose calls are awaited.

grpc.aio runs on one dedicated asyncio thread; only this module connects it with trio. Every call
has a deadline. Every method limits the size of its requests and the number of concurrent calls.
If a caller disconnects, its handler is cancelled. The cancellation of a call also reaches the
peer. A channel reconnects automatically, with back-off.

With certificates, both sides authenticate (mutual TLS). Reloaded files apply to new connections;
open connections continue.
"""

import asyncio
import logging
import os
import resource
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
import trio

from ottla.model.asyncio_thread_driver import AsyncioThread, open_asyncio_thread
from ottla.model.errors import ConfigError, ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import RPC_MESSAGE_BYTES_MAX
from ottla.model.settings.security.tls import TlsConfig
from ottla.rpc.caller import UNKNOWN_CALLER, Caller, caller_of, host_of
from ottla.rpc.method import MethodHandler, Request, Response, RpcMethod
from ottla.rpc.node_certificates_driver import NodeCertificates
from ottla.rpc.rpc_seam import join_address
from ottla.rpc.status import ERROR_CODE_KEY, refusal_of

RECONNECT_BACKOFF_MS_FIRST = 5
"""First delay in ms before a gRPC channel reconnects. It is short, because a broker may start a few
milliseconds before its controller."""
RECONNECT_BACKOFF_MS_MAX = 300
"""Maximum delay in ms before a gRPC channel reconnects. A restarted peer is reached within this
time. With a smaller delay, channels would connect to a dead peer too often."""

CONNECT_TIMEOUT_MS = 2_000
"""Timeout in ms of one attempt of a gRPC channel to connect. With a shorter timeout, a distant peer
might never be reached."""

KEEPALIVE_MS = 10_000
"""Interval in ms of keepalive probes on an idle gRPC connection. The probes detect a peer that was
lost without a FIN."""

STREAMS_MAX = 1_024
"""Maximum number of concurrent calls on one gRPC connection. A smaller value makes the calls of
a busy broker wait for each other. Each call may occupy memory up to the request limit of its
method."""

CONNECTIONS_MAX = 5_000
"""Maximum number of connections for each address of a gRPC server; further connections are closed.
A cluster has a few connections for each of its nodes. An open connection costs 20 KB. A closed
connection costs 45 KB until the allocator releases the memory. With a smaller value, idle foreign
connections can lock out nodes more easily."""

HANDSHAKE_MS_MAX = 5_000
"""Time in ms within which a connected caller must present its certificate, or its first HTTP/2
frame. With gRPC's default of 120 s, unknown peers that reconnect and stay idle could lock out a
restarting node. A shorter time disconnects callers on busy machines, which then call again.
"""

GRPC_LOGGER = "grpc._cython.cygrpc"
LOST_CALLER = "ExecuteBatchError raised in core by servicer method"

ENVELOPE_BYTES = 1_024
"""Number of bytes that gRPC may add to a message before it checks the message's size."""

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
    ("grpc.so_reuseport", 0),  # a port in use must fail, not share its calls with another process
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
)


OLD_CHANNEL_GRACE_S = 60.0
"""Time in seconds for which calls in progress may continue on a connection whose certificate was
replaced. It is longer than any long poll."""


class RpcChannel:
    """A gRPC channel to one address. The channel connects on its first call, and reconnects after a
    lost connection."""

    def __init__(
        self, thread: AsyncioThread, address: str, certificates: NodeCertificates | None
    ) -> None:
        """Create a gRPC channel to an address. With `certificates`, the channel is encrypted. The
        caller must run on the asyncio loop."""
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
        """Call a method of the peer, and return the response. `deadline_ms` is the maximum duration
        of the call.

        Raises RefusedError with the error code of the peer, or with NETWORK_EXCEPTION or
        REQUEST_TIMED_OUT.
        """
        path, data = method.path, request.SerializeToString()
        try:
            answer = await self._thread.run(partial(self._call, path, data, deadline_ms / 1000))
        except ConnectionAbortedError as error:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, "the runtime is closing") from error
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from None
        return method.decode_response(answer)

    async def close(self) -> None:
        """Close the gRPC channel. Calls in progress fail."""
        await self._thread.run(self.close_now)

    async def close_now(self) -> None:
        """Close the gRPC channel at once. The caller must run on the asyncio loop."""
        for task in self._old:
            task.cancel()
        await asyncio.gather(*self._old, return_exceptions=True)
        await self._channel.close(None)

    def _renew(self, certificates: NodeCertificates) -> None:
        """Replace the channel's connection by a connection with the current certificates. Calls in
        progress continue on the old connection."""
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
    """gRPC of one process: its servers and its channels to other nodes. All of them run on one
    asyncio thread."""

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
        """TLS certificates for outgoing calls, or None if outgoing calls are not encrypted."""
        self._nursery: trio.Nursery | None = None
        """Nursery of the tasks that process incoming calls. None while the process serves no
        methods."""
        self._servers: list[grpc.aio.Server] = []
        self._channels: dict[str, RpcChannel] = {}
        self._call_counts: Counter[str] = Counter()
        """Number of incoming calls in progress, by the method's path. Accessed only on the asyncio
        loop."""

    async def serve(
        self,
        host: str,
        port: int,
        handlers: Iterable[MethodHandler[Any, Any]],
        *,
        tls: TlsConfig | None = None,
        caller_host: Callable[[str], str] = host_of,
    ) -> int:
        """Listen on an address and serve the methods of `handlers`. Returns the port, which the
        system chooses if `port` is 0.

        With `tls`, callers must present certificates, and the `admit` of each handler receives the
        certificate's identity. `caller_host` derives the caller's host from gRPC's description of
        its connection. It is called in gRPC's thread.
        """
        certificates = None if tls is None else NodeCertificates(tls)
        answering = _Listener(tuple(handlers), certificates, caller_host)
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
        """Return the gRPC channel to an address (`host:port` or `unix:/path`). The channel is
        created on first use."""
        known = self._channels.get(address)
        if known is None:
            made = await self._thread.run(partial(self._open_channel, address))
            known = self._channels.setdefault(address, made)
        return known

    async def _open_channel(self, address: str) -> RpcChannel:
        return RpcChannel(self._thread, address, self._certificates)

    async def stop_serving(self) -> None:
        """Cancel incoming calls in progress and stop listening. Channels for outgoing calls
        continue to work."""
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()
        await self._thread.run(self._stop_servers)

    async def close(self) -> None:
        """Stop serving and close all channels for outgoing calls."""
        await self.stop_serving()
        await self._thread.run(self._close_channels)

    async def hold_answers(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the tasks that process incoming calls until the runtime is closed. These tasks are
        independent of the task that opened the runtime."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _start_server(self, address: str, answering: "_Listener") -> int:
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
        answering: "_Listener",
        data: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],
    ) -> bytes:
        path = handler.method.path
        incoming = _IncomingCall(self._thread, handler, data, answering.caller_of(context))
        if self._call_counts[path] >= handler.method.calls_max:
            incoming.resolve(BUSY)
        else:
            self._thread.post_to_trio(self._start_call, incoming)
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

    def _start_call(self, incoming: "_IncomingCall") -> None:
        if self._nursery is None:
            self._thread.post_to_asyncio(incoming.resolve, CLOSING)
        else:
            self._nursery.start_soon(incoming.answer)

    async def _stop_servers(self) -> None:
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.stop(None) for server in servers))

    async def _close_channels(self) -> None:
        await asyncio.gather(*(channel.close_now() for channel in self._channels.values()))


class _Listener:
    """The handlers of one gRPC listener, and the rules that map its callers' certificates to
    principals."""

    __slots__ = ("_caller_host", "certificates", "handlers")

    def __init__(
        self,
        handlers: tuple[MethodHandler[Any, Any], ...],
        certificates: NodeCertificates | None,
        caller_host: Callable[[str], str],
    ) -> None:
        self._caller_host = caller_host
        self.handlers = handlers
        self.certificates = certificates

    def caller_of(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> Caller:
        """Return the identity of the process that made a call. The listener's rules map the
        process's certificate to a principal."""
        if self.certificates is None:
            return UNKNOWN_CALLER
        rules = self.certificates.config.principal_rules
        host = self._caller_host(context.peer())
        return caller_of(host, context.auth_context(), rules.user_of)


class _GenericHandler(grpc.GenericRpcHandler):
    """Implementation of gRPC's interface for finding the handler of a method by its path."""

    def __init__(self, runtime: RpcRuntime, answering: _Listener) -> None:
        self._rows: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            handler.method.path: grpc.unary_unary_rpc_method_handler(
                partial(runtime._serve_call, handler, answering)
            )
            for handler in answering.handlers
        }

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of the called path. Returns None if no method has this path; gRPC then
        responds with UNIMPLEMENTED."""
        return self._rows.get(handler_call_details.method)


class _IncomingCall:
    """An incoming gRPC call that a trio task processes. The asyncio side waits for its `result`."""

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
        """Process the incoming call and set its result. Runs on the trio loop."""
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
        """Stop processing the incoming call, because the caller has disconnected. Runs on the trio
        loop."""
        self._scope.cancel()

    def resolve(self, result: bytes | RefusedError) -> None:
        """Set the result of the incoming call. Runs on the asyncio loop."""
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
    """Log filter that drops gRPC's log record about a response whose caller has disconnected.
    Returns False for such a record.

    The record does not indicate an error: the deadline of the caller has passed, or its process has
    ended.
    """
    return not record.getMessage().startswith(LOST_CALLER)


def default_connections_max() -> int:
    """Return the default maximum number of connections of a gRPC server. It is at most
    CONNECTIONS_MAX and at most half of the file descriptors, so that the other half remains for
    other uses."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(CONNECTIONS_MAX, descriptors // 2))


@asynccontextmanager
async def open_rpc_runtime(
    tls: TlsConfig | None = None, *, connections_max: int | None = None
) -> AsyncIterator[RpcRuntime]:
    """Run gRPC for the duration of the `async with` block. Yields the `RpcRuntime`.

    With `tls`, outgoing calls are encrypted and present the certificate in `tls`. If
    `connections_max` is None, the limit is derived from the process's limit of file descriptors.
    """
    certificates = None if tls is None else NodeCertificates(tls)
    connections_max = connections_max or default_connections_max()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # or it writes every disconnection to stderr
    async with open_asyncio_thread("ottla-grpc") as thread, trio.open_nursery() as nursery:
        runtime = RpcRuntime(thread, connections_max=connections_max, certificates=certificates)
        await nursery.start(runtime.hold_answers)
        try:
            yield runtime
        finally:
            with trio.CancelScope(shield=True):
                await runtime.close()
