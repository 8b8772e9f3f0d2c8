"""Answers that are kept: only of the same state, for the same bytes, and not without bound."""

from ottla.broker.network.ready_answers import (
    ANSWER_BYTES_MAX,
    ANYONE,
    ENTRY_BYTES,
    KEPT_BYTES_MAX,
    REQUEST_BYTES_MAX,
    AnswerKey,
    Asker,
    ReadyAnswers,
)
from ottla.wire.headers import RequestHeader

DOOR = ("PLAINTEXT", "10.0.0.1", 9092)


class State:
    """What answers are made of, which is replaced as a whole."""

    def __init__(self) -> None:
        self.now = object()


def key_of(ready: ReadyAnswers, body: bytes, version: int = 12, asker: Asker = ANYONE) -> AnswerKey:
    header = RequestHeader(3, version, 1, "c", 4)
    found = ready.key(header, DOOR, memoryview(b"head" + body), asker)
    assert found is not None
    return found


def test_an_answer_is_found_until_what_it_was_made_of_is_replaced() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    key = key_of(ready, b"ask")
    assert ready.find(key) is None
    ready.keep(key, state.now, b"answer")
    assert ready.find(key) == b"answer"
    assert ready.find(key_of(ready, b"other")) is None
    assert ready.find(key_of(ready, b"ask", version=11)) is None
    state.now = object()
    assert ready.find(key) is None


def test_an_answer_made_of_what_was_replaced_meanwhile_is_not_kept() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    before, state.now = state.now, object()
    ready.keep(key_of(ready, b"ask"), before, b"answer")
    assert ready.find(key_of(ready, b"ask")) is None


def test_what_is_kept_is_bounded_however_many_requests_are_invented() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    for number in range(10_000):
        ready.keep(key_of(ready, b"%d" % number), state.now, bytes(1_000))
        assert ready.kept_bytes <= KEPT_BYTES_MAX
    assert ready.find(key_of(ready, b"9999")) == bytes(1_000)


def test_an_answer_is_that_of_one_user_at_one_host_by_one_state_of_the_entries() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    askers: list[Asker] = [
        ANYONE,
        (1, "User:al", "10.0.0.1"),
        (2, "User:al", "10.0.0.1"),
        (1, "User:bo", "10.0.0.1"),
        (1, "User:al", "10.0.0.2"),
    ]
    for number, asker in enumerate(askers):
        assert ready.find(key_of(ready, b"ask", asker=asker)) is None
        ready.keep(key_of(ready, b"ask", asker=asker), state.now, b"answer %d" % number)
    found = [ready.find(key_of(ready, b"ask", asker=asker)) for asker in askers]
    assert found == [b"answer %d" % number for number in range(len(askers))]


def test_what_is_kept_is_bounded_however_many_users_come_and_however_long_their_names_are() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    for number in range(20_000):
        asker = number % 3, f"User:{number:0{1 + number % 4_000}}", "10.0.0.1"
        ready.keep(key_of(ready, b"ask", asker=asker), state.now, b"answer")
        held = [*ready._young, *ready._old]
        assert ready.kept_bytes <= KEPT_BYTES_MAX
        assert len(held) <= KEPT_BYTES_MAX // ENTRY_BYTES
        if number % 500 == 0:
            assert sum(len(key[2][1]) for key in held) < ready.kept_bytes


def test_what_is_asked_again_outlives_what_is_asked_once() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    often = key_of(ready, b"often")
    ready.keep(often, state.now, b"answer")
    for number in range(20_000):
        ready.keep(key_of(ready, b"%d" % number), state.now, bytes(1_000))
        assert ready.find(often) == b"answer"
        assert ready.kept_bytes <= KEPT_BYTES_MAX
    assert ready.find(key_of(ready, b"0")) is None


def test_what_is_large_is_not_kept() -> None:
    state = State()
    ready = ReadyAnswers(lambda: state.now)
    ready.keep(key_of(ready, b"ask"), state.now, bytes(ANSWER_BYTES_MAX + 1))
    assert ready.find(key_of(ready, b"ask")) is None
    large = memoryview(bytes(REQUEST_BYTES_MAX + 5))
    assert ready.key(RequestHeader(3, 12, 1, "c", 4), DOOR, large) is None
