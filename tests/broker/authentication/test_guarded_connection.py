"""A connection of a SASL listener, bytes in and bytes out."""

import struct
from functools import partial
from typing import Any

import pytest

from ottla.model.errors import ErrorCode, ProtocolError
from ottla.model.security.acls import ANONYMOUS_USER
from ottla.node.authentication.illegal_state import register_sasl_apis
from ottla.node.authentication.sasl_session import SaslRules, SaslSession
from ottla.node.network.connection import Connection
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.wire.apis import API_VERSIONS, HEARTBEAT
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

RIGHT, WRONG = b"\0al\0pw", b"\0al\0no"
KIB = 1024


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def asked(message: Message, version: int) -> bytes:
    header = encode_request_header(message.API_KEY, version, 7, "me")
    return framed(header + encode(message, version))


HELLO = asked(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
HANDSHAKE = asked(SaslHandshakeRequest(mechanism="PLAIN"), 1)
HANDSHAKE_0 = asked(SaslHandshakeRequest(mechanism="PLAIN"), 0)
HEARTBEAT_FRAME = asked(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)


def token(data: bytes) -> bytes:
    return asked(SaslAuthenticateRequest(auth_bytes=data), 2)


class Client:
    """A connection to a listener with SASL, and the host that serves it."""

    def __init__(self, rules: SaslRules, listener: str = "OUT") -> None:
        self.users: list[str] = []
        self.wakes: list[int] = []
        self.faults: list[Exception] = []
        self.work_count = 0
        self.memory = RequestMemory(None)
        dispatcher = Dispatcher({HEARTBEAT: self._on_heartbeat, API_VERSIONS: self._on_hello})
        register_sasl_apis(dispatcher)
        dispatcher.guards = {"OUT": partial(SaslSession, rules)}
        self.peer = Peer(
            connection_id=1,
            listener_name=listener,
            peer_host="10.0.0.1",
            peer_port=1,
            local_host="10.0.0.2",
            local_port=2,
        )
        self.connection = Connection(
            self.peer, dispatcher, self, memory=self.memory, limits=ConnectionLimits(), now_ms=0
        )

    def _on_heartbeat(self, context: RequestContext, request: object) -> Message:
        self.users.append(context.peer.user)
        return HeartbeatResponse()

    def _on_hello(self, context: RequestContext, request: object) -> Message:
        return ApiVersionsResponse()

    # The connection's host.

    def on_work(self, connection: Connection) -> None:
        self.work_count += 1

    def run(self, connection: Connection, slot: Any, pending: Any) -> None:
        raise AssertionError

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        self.faults.append(fault)

    def give_up(self, connection: Connection, reason: str) -> None:
        raise AssertionError

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        self.wakes.append(deadline_ms)

    # The client.

    def send(self, *parts: bytes, now_ms: int = 0) -> None:
        self.connection.on_bytes(memoryview(bytearray(b"".join(parts))), now_ms)

    def received(self) -> list[bytes]:
        output = self.connection.output
        data = b"".join(bytes(chunk) for chunk in output.chunks)  # type: ignore[arg-type]
        self.connection.on_sent(len(data), 0)
        frames = []
        while data:
            (length,) = struct.unpack_from(">i", data)
            frames.append(data[4 : 4 + length])
            data = data[4 + length :]
        return frames


def read(kind: type[Any], version: int, frame: bytes) -> Any:
    _, body_at = decode_response_header(kind.API_KEY, version, frame)
    return decode(kind, version, frame[body_at:])


def test_a_client_that_logs_in_is_served_as_that_user(rules: SaslRules) -> None:
    client = Client(rules)
    client.send(HELLO, HANDSHAKE, token(RIGHT), HEARTBEAT_FRAME, HEARTBEAT_FRAME)
    hello, handshake, authenticated, *heartbeats = client.received()
    assert hello
    assert read(SaslHandshakeResponse, 1, handshake).error_code == 0
    assert read(SaslAuthenticateResponse, 2, authenticated).error_code == 0
    assert len(heartbeats) == 2
    assert client.users == ["al", "al"]
    assert client.connection.peer.user == "al"


def test_bytes_may_arrive_one_by_one(rules: SaslRules) -> None:
    client = Client(rules)
    for byte in HELLO + HANDSHAKE + token(RIGHT) + HEARTBEAT_FRAME:
        client.send(bytes((byte,)))
    assert len(client.received()) == 4
    assert client.users == ["al"]


@pytest.mark.parametrize(
    "frames",
    [
        [HEARTBEAT_FRAME],
        [HELLO, HEARTBEAT_FRAME],
        [HELLO, HELLO],
        [HELLO, HANDSHAKE, HEARTBEAT_FRAME],
        [token(RIGHT)],
    ],
)
def test_a_request_before_the_login_closes_the_connection(
    rules: SaslRules, frames: list[bytes]
) -> None:
    client = Client(rules)
    with pytest.raises(ProtocolError):
        client.send(*frames)
    assert client.users == []
    assert client.peer.user == ANONYMOUS_USER


def test_a_wrong_password_is_answered_late_and_then_the_connection_closes(
    rules: SaslRules,
) -> None:
    client = Client(rules)
    client.send(HELLO, HANDSHAKE)
    client.received()
    client.send(token(WRONG), HEARTBEAT_FRAME, now_ms=50)
    assert client.received() == []
    assert client.wakes == [150]
    assert not client.connection.wants_bytes
    assert client.connection.awaits_resume
    client.connection.resume(149)
    assert client.received() == []
    assert not client.connection.is_closing
    client.connection.resume(150)
    (answer,) = client.received()
    failed = read(SaslAuthenticateResponse, 2, answer)
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert failed.error_message == "Authentication failed: Invalid username or password"
    assert client.connection.is_closing
    assert client.users == []
    client.connection.close()
    assert client.memory.reserved_bytes == 0


def test_a_client_that_leaves_before_it_hears_of_its_failure_leaves_nothing(
    rules: SaslRules,
) -> None:
    client = Client(rules)
    client.send(HANDSHAKE, token(WRONG), token(RIGHT)[:20])
    client.connection.on_eof()
    assert client.connection.is_finished
    client.connection.close()
    client.connection.resume(1_000)
    assert client.memory.reserved_bytes == 0
    assert client.faults == []


def test_a_mechanism_that_is_not_served_is_answered_late(rules: SaslRules) -> None:
    client = Client(rules)
    client.send(asked(SaslHandshakeRequest(mechanism="GSSAPI"), 1))
    client.connection.resume(100)
    (answer,) = client.received()
    refused = read(SaslHandshakeResponse, 1, answer)
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert client.connection.is_closing


def test_raw_tokens_follow_the_oldest_handshake(rules: SaslRules) -> None:
    client = Client(rules)
    client.send(HELLO, HANDSHAKE_0)
    client.received()
    client.send(framed(RIGHT))
    assert client.received() == [b""]
    client.send(HEARTBEAT_FRAME)
    assert len(client.received()) == 1
    assert client.users == ["al"]


@pytest.mark.parametrize("data", [b"", WRONG, b"x"])
def test_a_wrong_raw_token_is_not_answered(rules: SaslRules, data: bytes) -> None:
    client = Client(rules)
    client.send(HANDSHAKE_0, framed(data))
    client.received()
    client.connection.resume(100)
    assert client.received() == []
    assert client.connection.is_closing


def test_a_frame_is_bounded_until_the_client_is_known(rules: SaslRules) -> None:
    client = Client(rules)
    client.send(struct.pack(">i", 512 * KIB))
    with pytest.raises(ProtocolError, match="frame length"):
        Client(rules).send(struct.pack(">i", 512 * KIB + 1))
    known = Client(rules)
    known.send(HANDSHAKE, token(RIGHT), struct.pack(">i", 512 * KIB + 1))
    with pytest.raises(ProtocolError, match="frame length"):
        Client(rules).send(HANDSHAKE, struct.pack(">i", 512 * KIB + 1))


def test_a_listener_without_sasl_says_that_nothing_is_to_be_authenticated(
    rules: SaslRules,
) -> None:
    client = Client(rules, "PLAINTEXT")
    client.send(HANDSHAKE, token(RIGHT), HEARTBEAT_FRAME)
    handshake, authenticate, _ = client.received()
    illegal = ErrorCode.ILLEGAL_SASL_STATE
    assert read(SaslHandshakeResponse, 1, handshake).error_code == illegal
    assert read(SaslAuthenticateResponse, 2, authenticate).error_code == illegal
    assert client.users == [ANONYMOUS_USER]


def test_a_second_login_is_refused_where_sessions_do_not_end(rules: SaslRules) -> None:
    client = Client(rules)
    client.send(HANDSHAKE, token(RIGHT), HANDSHAKE, HEARTBEAT_FRAME)
    *_, handshake, heartbeat = client.received()
    illegal = ErrorCode.ILLEGAL_SASL_STATE
    assert read(SaslHandshakeResponse, 1, handshake).error_code == illegal
    assert heartbeat
    assert client.users == ["al"]
