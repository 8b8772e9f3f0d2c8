"""Our own client's login, against the guard of a listener, in virtual time."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_stream
from ottla.client.network.login import LOGIN, starter_of
from ottla.client.network.pipeline import Pipeline
from ottla.client.network.transport import TRANSPORT
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.settings.security.sasl import SaslLogin
from ottla.node.authentication.illegal_state import register_sasl_apis
from ottla.node.authentication.sasl_session import SaslRules, SaslSession
from ottla.node.network.connection import Connection
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.wire.apis import API, API_VERSIONS, HEARTBEAT, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse

PASSWORDS: Mapping[str, str] = dict.fromkeys(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), "pw")
SESSION_MS = 60_000


@pytest.fixture(autouse=True)
def _compute_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute without a thread: virtual time would run on meanwhile."""

    async def run_sync(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)


def now_ms() -> int:
    return round(trio.current_time() * 1_000)


class Broker:
    """A broker in memory: the transport to it, the stream, and the host of its one connection."""

    def __init__(self, rules: SaslRules, listener: str = "OUT") -> None:
        self.users: list[str] = []
        self.on_request: Callable[[], None] | None = None
        self._is_closed = False
        dispatcher = Dispatcher({HEARTBEAT: self._on_heartbeat, API_VERSIONS: self._on_versions})
        register_sasl_apis(dispatcher)
        dispatcher.guards = {"OUT": partial(SaslSession, rules)}
        peer = Peer(
            connection_id=1,
            listener_name=listener,
            peer_host="10.0.0.1",
            peer_port=1,
            local_host="10.0.0.2",
            local_port=2,
        )
        self.connection = Connection(
            peer,
            dispatcher,
            self,
            memory=RequestMemory(None),
            limits=ConnectionLimits(),
            now_ms=now_ms(),
        )

    def _on_heartbeat(self, context: RequestContext, request: object) -> Message:
        self.users.append(context.peer.user)
        return HeartbeatResponse()

    def _on_versions(self, context: RequestContext, request: object) -> Message:
        keys = (API_VERSIONS, HEARTBEAT, SASL_HANDSHAKE, SASL_AUTHENTICATE)
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(
                    api_key=key,
                    min_version=API[key].advertised[0],
                    max_version=API[key].advertised[-1],
                )
                for key in keys
            ]
        )

    # The host.

    def on_work(self, connection: Connection) -> None: ...

    def run(self, connection: Connection, slot: Any, pending: Any) -> None:
        raise AssertionError

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        raise fault

    def give_up(self, connection: Connection, reason: str) -> None:
        raise AssertionError

    def wake_at(self, connection: Connection, deadline_ms: int) -> None: ...

    # The transport and its stream.

    async def connect(self, host: str, port: int) -> "Broker":
        return self

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        if self._is_closed:
            raise trio.ClosedResourceError
        if self.on_request is not None:
            self.on_request()
        try:
            self.connection.on_bytes(memoryview(bytearray(data)), now_ms())
        except ProtocolError:
            self._is_closed = True

    async def receive_some(self, max_bytes: int) -> bytes:
        output = self.connection.output
        while not output.byte_count:
            if self._is_closed or self.connection.is_closing:
                return b""
            await trio.sleep(0.01)
            self.connection.resume(now_ms())
        data = b"".join(bytes(chunk) for chunk in output.chunks)  # type: ignore[arg-type]
        self.connection.on_sent(len(data), now_ms())
        return data

    async def receive_into(self, room: memoryview) -> int:
        raise AssertionError

    def abort(self) -> None:
        self._is_closed = True

    async def aclose(self) -> None:
        self._is_closed = True


async def connected(
    broker: Broker, login: SaslLogin | None, kind: type[BrokerConnection] = BrokerConnection
) -> BrokerConnection:
    TRANSPORT.set(broker)
    return await open_stream(kind, "b", 1, client_id="me", timeout_s=10, login=login)


async def heartbeat(connection: BrokerConnection) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    await connection.request(request, HeartbeatResponse, 3)


@pytest.mark.parametrize("kind", [BrokerConnection, Pipeline])
@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_client_logs_in_and_is_served(
    autojump_clock: MockClock,
    rules: SaslRules,
    mechanism: str,
    kind: type[BrokerConnection],
) -> None:
    broker = Broker(rules)
    connection = await connected(broker, SaslLogin(mechanism, "al", "pw"), kind)
    await heartbeat(connection)
    assert broker.users == ["al"]


async def test_a_task_logs_in_with_the_configured_credentials(
    autojump_clock: MockClock, rules: SaslRules
) -> None:
    LOGIN.set(SaslLogin("SCRAM-SHA-512", "al", "pw"))
    broker = Broker(rules)
    await heartbeat(await connected(broker, None))
    assert broker.users == ["al"]


async def test_a_task_logs_in_as_the_one_that_owns_its_nursery(autojump_clock: MockClock) -> None:
    seen: list[SaslLogin | None] = []
    own = SaslLogin("SCRAM-SHA-512", "broker", "pw")

    async def note() -> None:
        seen.append(LOGIN.get())
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        token = LOGIN.set(own)
        start_soon = starter_of(nursery)
        LOGIN.reset(token)
        start_soon(note)  # as a request's task would, which logs in nowhere
        nursery.start_soon(note)
    assert sorted(seen, key=str) == sorted([own, None], key=str)
    assert LOGIN.get() is None


@pytest.mark.parametrize(
    ("login", "listener", "code", "message"),
    [
        (SaslLogin("PLAIN", "al", "no"), "OUT", 58, "Invalid username or password"),
        (SaslLogin("SCRAM-SHA-256", "al", "no"), "OUT", 58, "due to invalid credentials"),
        (SaslLogin("SCRAM-SHA-256", "nosuch", "pw"), "OUT", 58, "due to invalid credentials"),
        (SaslLogin("OTHER", "al", "pw"), "OUT", 33, "does not serve OTHER, but PLAIN, SCRAM-SHA"),
        (SaslLogin("PLAIN", "al", "pw"), "PLAINTEXT", 34, "asks for no login there"),
    ],
)
async def test_a_login_that_is_not_taken_says_why(
    autojump_clock: MockClock,
    rules: SaslRules,
    login: SaslLogin,
    listener: str,
    code: int,
    message: str,
) -> None:
    with pytest.raises(RefusedError, match=message) as caught:
        await connected(Broker(rules, listener), login)
    assert caught.value.code is ErrorCode(code)


@pytest.mark.parametrize("kind", [BrokerConnection, Pipeline])
async def test_a_session_is_renewed_before_it_ends(
    autojump_clock: MockClock, rules: SaslRules, kind: type[BrokerConnection]
) -> None:
    ending = replace(rules, session_ms_max=dict.fromkeys(PASSWORDS, SESSION_MS))
    broker = Broker(ending)
    connection = await connected(broker, SaslLogin("SCRAM-SHA-256", "al", "pw"), kind)
    for _ in range(20):
        await trio.sleep(9)
        await heartbeat(connection)
    assert broker.users == ["al"] * 20
    assert ending.counts.reauthentications == 3
    assert ending.counts.expired == 0


async def test_who_does_not_log_in_is_hung_up_on(
    autojump_clock: MockClock, rules: SaslRules
) -> None:
    connection = await connected(Broker(rules), None)
    with pytest.raises(ConnectionLostError):
        await heartbeat(connection)


@pytest.mark.parametrize("kind", [BrokerConnection, Pipeline])
async def test_a_renewal_that_is_cancelled_ends_the_connection(
    autojump_clock: MockClock, rules: SaslRules, kind: type[BrokerConnection]
) -> None:
    ending = replace(rules, session_ms_max=dict.fromkeys(PASSWORDS, SESSION_MS))
    broker = Broker(ending)
    connection = await connected(broker, SaslLogin("SCRAM-SHA-256", "al", "pw"), kind)
    await trio.sleep(55)
    with trio.CancelScope() as scope:
        broker.on_request = scope.cancel
        await heartbeat(connection)
    assert scope.cancelled_caught
    with pytest.raises(ConnectionLostError):
        await heartbeat(connection)
    assert broker.users == []
