"""The authentication of a connection: every state with every message."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ErrorCode, ProtocolError
from ottla.model.security.acls import ANONYMOUS_USER
from ottla.model.security.scram import SCRAM_SHA_256, ScramClient
from ottla.node.authentication.mechanism import SaslReply
from ottla.node.authentication.plain import PlainMechanism
from ottla.node.authentication.sasl_session import (
    SaslCounts,
    SaslRules,
    SaslSession,
    SaslState,
)
from ottla.node.authentication.scram_server import ScramMechanism
from ottla.node.clock_driver import RealRng
from ottla.node.network.dispatch import NotServedYetError, Peer
from ottla.wire.apis import API, API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest

NOW = 1_000
DELAY = 100
RIGHT = b"\0al\0pw"
WRONG = b"\0al\0no"
PASS, CLOSE = "pass", "close"


def session_of(rules: SaslRules) -> SaslSession:
    peer = Peer(
        connection_id=1,
        listener_name="OUT",
        peer_host="10.0.0.1",
        peer_port=1,
        local_host="10.0.0.2",
        local_port=2,
    )
    return SaslSession(rules, peer)


def frame_of(message: Message, version: int) -> bytes:
    return encode_request_header(message.API_KEY, version, 7, "me") + encode(message, version)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame_of(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 2) -> bytes:
    return frame_of(SaslAuthenticateRequest(auth_bytes=data), version)


def api_versions(version: int = 3) -> bytes:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    return frame_of(request, version)


UNKNOWN_API_VERSIONS = encode_request_header(API_VERSIONS, 99, 7, "me")
METADATA_FRAME = frame_of(MetadataRequest(topics=None), 9)


def outcome(session: SaslSession, frame: bytes, now_ms: int = NOW) -> Any:
    """Return the outcome of a frame: pass, close, or the error code (late if it closes)."""
    try:
        answer = session.on_frame(memoryview(frame), now_ms)
    except ProtocolError:
        return CLOSE
    if answer is None:
        return PASS
    code = None if answer.message is None else getattr(answer.message, "error_code", None)
    if answer.closes_at_ms is None:
        return code if answer.token is None else answer.token
    assert answer.closes_at_ms == now_ms + DELAY
    return "late", code


def said(session: SaslSession, frame: bytes, now_ms: int = NOW) -> Any:
    """Return the message that answers a frame."""
    answer = session.on_frame(memoryview(frame), now_ms)
    assert answer is not None
    assert answer.message is not None
    return answer.message


def in_state(rules: SaslRules, state: SaslState) -> SaslSession:
    session = session_of(rules)
    way = {
        SaslState.START: [],
        SaslState.HANDSHAKE: [api_versions()],
        SaslState.TOKENS: [api_versions(), handshake()],
        SaslState.RAW_TOKENS: [handshake(version=0)],
        SaslState.DONE: [handshake(), token(RIGHT)],
        SaslState.FAILED: [handshake(), token(WRONG)],
    }[state]
    for frame in way:
        session.on_frame(memoryview(frame), NOW)
    assert session.state is state
    return session


FRAMES: dict[str, Callable[[], bytes]] = {
    "ApiVersions": api_versions,
    "ApiVersions 99": lambda: UNKNOWN_API_VERSIONS,
    "Handshake 1": handshake,
    "Handshake 0": lambda: handshake(version=0),
    "Handshake 2": lambda: encode_request_header(SASL_HANDSHAKE, 2, 7, "me"),
    "Handshake of GSSAPI": lambda: handshake("GSSAPI"),
    "Handshake cut off": lambda: handshake()[:-2],
    "right token": lambda: token(RIGHT),
    "right token 0": lambda: token(RIGHT, 0),
    "wrong token": lambda: token(WRONG),
    "token cut off": lambda: token(RIGHT)[:-5],
    "token 3": lambda: encode_request_header(SASL_AUTHENTICATE, 3, 7, "me"),
    "right raw token": lambda: RIGHT,
    "wrong raw token": lambda: WRONG,
    "empty": lambda: b"",
    "Metadata": lambda: METADATA_FRAME,
    "unknown API": lambda: encode_request_header(METADATA, 1, 7, "me").replace(
        b"\0\x03", b"\x7f\x03"
    ),
}

LATE_58 = ("late", ErrorCode.SASL_AUTHENTICATION_FAILED)
LATE_34 = ("late", ErrorCode.ILLEGAL_SASL_STATE)
LATE_33 = ("late", ErrorCode.UNSUPPORTED_SASL_MECHANISM)

TABLE: dict[SaslState, dict[str, Any]] = {
    SaslState.START: {
        "ApiVersions": PASS,
        "ApiVersions 99": PASS,
        "Handshake 1": 0,
        "Handshake 0": 0,
        "Handshake of GSSAPI": LATE_33,
    },
    SaslState.HANDSHAKE: {
        "Handshake 1": 0,
        "Handshake 0": 0,
        "Handshake of GSSAPI": LATE_33,
    },
    SaslState.TOKENS: {
        "ApiVersions": LATE_34,
        "Handshake 1": LATE_34,
        "Handshake 0": LATE_34,
        "Handshake of GSSAPI": LATE_34,
        "right token": 0,
        "right token 0": 0,
        "wrong token": LATE_58,
    },
    SaslState.RAW_TOKENS: {"right raw token": b""},
    SaslState.DONE: {**dict.fromkeys(FRAMES, PASS), "empty": CLOSE},
    SaslState.FAILED: {},
}
"""Outcome of each frame in each state; a frame that is not listed closes the connection."""


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("state", SaslState)
def test_every_state_knows_every_message(rules: SaslRules, state: SaslState, name: str) -> None:
    session = in_state(rules, state)
    default: Any = CLOSE
    if state is SaslState.RAW_TOKENS:
        # Whatever it is, it is taken for a token.
        default = ("late", None)
    expected = TABLE[state].get(name, default)
    assert outcome(session, FRAMES[name](), NOW + 1) == expected


def test_the_user_is_known_after_the_proof_alone(rules: SaslRules) -> None:
    session = session_of(rules)
    for frame in (api_versions(), handshake()):
        session.on_frame(memoryview(frame), NOW)
        assert session._peer.user == ANONYMOUS_USER
        assert not session.is_done
    assert said(session, token(RIGHT)).error_code == 0
    assert session._peer.user == "al"
    assert session.is_done
    assert rules.counts.successes == 1


def test_a_wrong_password_leaves_the_session_without_a_principal(rules: SaslRules) -> None:
    session = in_state(rules, SaslState.FAILED)
    assert session._peer.user == ANONYMOUS_USER
    assert not session.is_done
    assert outcome(session, token(RIGHT)) == CLOSE
    assert rules.counts.failures == 1


def test_the_answer_to_a_handshake_names_what_is_served(rules: SaslRules) -> None:
    for mechanism in ("PLAIN", "GSSAPI"):
        answer = said(session_of(rules), handshake(mechanism))
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["al", "nosuch"])
def test_failures_of_scram_look_alike(rules: SaslRules, mechanism: str, user: str) -> None:
    session = session_of(rules)
    session.on_frame(memoryview(handshake(mechanism)), NOW)
    first = said(session, token(f"n,,n={user},r=abc".encode()))
    assert first.error_code == 0
    nonce = first.auth_bytes.decode().split(",")[0]
    last = said(session, token(f"c=biws,{nonce},p=YWJj".encode()))
    assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert last.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_scram_takes_two_tokens(rules: SaslRules, version: int) -> None:
    session = session_of(rules)
    session.on_frame(memoryview(handshake("SCRAM-SHA-256")), NOW)
    client = ScramClient(SCRAM_SHA_256, "al", "abc")
    first = said(session, token(client.first, version))
    salt, iterations = client.on_server_first(first.auth_bytes)
    proof = client.final(SCRAM_SHA_256.salted_password("pw", salt, iterations))
    last = said(session, token(proof, version))
    client.check_server_final(last.auth_bytes)
    assert session.is_done
    assert session._peer.user == "al"


def test_frames_are_small_until_the_client_is_known(rules: SaslRules) -> None:
    for state in SaslState:
        session = in_state(rules, state)
        is_open = state is SaslState.DONE
        assert session.frame_bytes_max == (None if is_open else 524_288)
        assert session.frame_bytes_min == (0 if state is SaslState.RAW_TOKENS else None)


def test_logins_are_retriable_until_the_users_are_loaded() -> None:
    mechanism = ScramMechanism(SCRAM_SHA_256, lambda: None, RealRng())
    rules = SaslRules(
        mechanisms={mechanism.name: mechanism}, session_ms_max={}, counts=SaslCounts()
    )
    with pytest.raises(NotServedYetError):
        session_of(rules).on_frame(memoryview(handshake(mechanism.name)), NOW)
    assert rules.counts.failures == 0


# Sessions that end (KIP-368).


@pytest.fixture
def ending(rules: SaslRules) -> SaslRules:
    """SASL rules of a listener whose sessions last a minute."""
    return replace(rules, session_ms_max={"PLAIN": 60_000})


def logged_in(rules: SaslRules, version: int = 2) -> SaslSession:
    session = session_of(rules)
    session.on_frame(memoryview(handshake()), NOW)
    answer = said(session, token(RIGHT, version))
    expected = rules.session_ms_max.get("PLAIN", 0) if version else 0
    assert answer.session_lifetime_ms == expected
    return session


def test_a_session_ends_unless_its_client_logs_in_again(ending: SaslRules) -> None:
    session = logged_in(ending)
    assert outcome(session, METADATA_FRAME, NOW + 59_999) == PASS
    assert outcome(session, METADATA_FRAME, NOW + 60_000) == CLOSE
    assert ending.counts.expired == 1


def test_a_client_logs_in_again_on_the_same_connection(ending: SaslRules) -> None:
    session = logged_in(ending)
    for round_number in range(1, 4):
        now_ms = NOW + round_number * 50_000
        assert outcome(session, handshake(), now_ms) == 0
        assert session.frame_bytes_max == 524_288
        assert outcome(session, token(RIGHT), now_ms) == 0
        assert outcome(session, METADATA_FRAME, now_ms + 59_999) == PASS
    assert ending.counts.reauthentications == 3
    assert outcome(session, METADATA_FRAME, NOW + 150_000 + 60_000) == CLOSE


def test_a_late_handshake_still_saves_a_session(ending: SaslRules) -> None:
    session = logged_in(ending)
    assert outcome(session, handshake(), NOW + 70_000) == 0


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([handshake(), token(b"\0ben\0pw2")], LATE_58),
        ([handshake(), token(WRONG)], LATE_58),
        ([handshake("SCRAM-SHA-256")], LATE_34),
        ([handshake("GSSAPI")], LATE_33),
        ([handshake(), METADATA_FRAME], CLOSE),
        ([handshake(), handshake()], LATE_34),
    ],
    ids=["another user", "wrong password", "another mechanism", "none", "a request", "twice"],
)
def test_a_client_reauthenticates_as_the_same_principal(
    ending: SaslRules, frames: list[bytes], expected: Any
) -> None:
    session = logged_in(ending)
    *before, last = frames
    for frame in before:
        assert outcome(session, frame, NOW + 50_000) == 0
    assert outcome(session, last, NOW + 50_000) == expected
    assert session._peer.user == "al"


def test_who_logs_in_again_at_once_is_answered_as_by_kafka(ending: SaslRules) -> None:
    # The dispatcher answers such a handshake with ILLEGAL_SASL_STATE.
    assert outcome(logged_in(ending), handshake(), NOW + 999) == PASS


def test_a_session_ends_though_its_client_is_too_old_to_hear_of_it(ending: SaslRules) -> None:
    session = logged_in(ending, version=0)
    assert outcome(session, METADATA_FRAME, NOW + 59_999) == PASS
    assert outcome(session, METADATA_FRAME, NOW + 60_000) == CLOSE
    assert ending.counts.successes_without_renewal == 1


def test_a_token_that_has_ended_does_not_serve_on_by_raw_tokens(rules: SaslRules) -> None:
    class Exchange:
        def respond(self, token: bytes) -> SaslReply:
            return SaslReply(b"", "al", 5_000)

    class Tokens:
        name, is_ready = "TOKENS", True

        def begin(self) -> Exchange:
            return Exchange()

    session = session_of(replace(rules, mechanisms={"TOKENS": Tokens()}))
    session.on_frame(memoryview(handshake("TOKENS", version=0)), NOW)
    session.on_frame(memoryview(b"x"), NOW)
    assert outcome(session, METADATA_FRAME, NOW + 4_999) == PASS
    assert outcome(session, METADATA_FRAME, NOW + 5_000) == CLOSE


# Hostile bytes.


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_no_bytes_make_a_user(frames: list[bytes], is_raw: bool) -> None:
    plain = PlainMechanism({"al": "a password that is not guessed"})
    rules = SaslRules(mechanisms={"PLAIN": plain}, session_ms_max={}, counts=SaslCounts())
    session = session_of(rules)
    session.on_frame(memoryview(handshake(version=0 if is_raw else 1)), NOW)
    for frame in frames:
        try:
            session.on_frame(memoryview(frame), NOW)
        except ProtocolError:
            break
    assert session._peer.user == ANONYMOUS_USER
    assert not session.is_done


@given(st.data())
def test_a_damaged_login_is_refused_or_closed(data: st.DataObject) -> None:
    plain = PlainMechanism({"al": "pw"})
    rules = SaslRules(mechanisms={"PLAIN": plain}, session_ms_max={}, counts=SaslCounts())
    frame = bytearray(data.draw(st.sampled_from([handshake(), token(RIGHT), api_versions()])))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(frame)))
    session = in_state(rules, data.draw(st.sampled_from([SaslState.START, SaslState.TOKENS])))
    with suppress(ProtocolError):
        session.on_frame(memoryview(frame)[:cut], NOW)
    assert session.state in SaslState


def test_the_keys_of_authentication_are_those_of_the_table() -> None:
    assert [API[key].name for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE)] == [
        "SaslHandshake",
        "SaslAuthenticate",
    ]
