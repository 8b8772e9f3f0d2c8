"""Cached responses: valid for the same state and request bytes only, and bounded in number."""

from ottla.node.network.response_cache import (
    ANSWER_BYTES_MAX,
    ANYONE,
    ENTRY_BYTES,
    KEPT_BYTES_MAX,
    REQUEST_BYTES_MAX,
    CacheKey,
    ClientKey,
    ResponseCache,
)
from ottla.wire.headers import RequestHeader

DOOR = ("PLAINTEXT", "10.0.0.1", 9092)


class State:
    """Source of answers, which is replaced as a whole."""

    def __init__(self) -> None:
        self.now = object()


def key_of(
    cache: ResponseCache, body: bytes, version: int = 12, client_key: ClientKey = ANYONE
) -> CacheKey:
    header = RequestHeader(3, version, "c", 4)
    found = cache.key(header, DOOR, memoryview(b"head" + body), client_key)
    assert found is not None
    return found


def test_an_answer_is_found_until_what_it_was_made_of_is_replaced() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    key = key_of(cache, b"ask")
    assert cache.find(key) is None
    cache.keep(key, state.now, b"answer")
    assert cache.find(key) == b"answer"
    assert cache.find(key_of(cache, b"other")) is None
    assert cache.find(key_of(cache, b"ask", version=11)) is None
    state.now = object()
    assert cache.find(key) is None


def test_an_answer_made_of_what_was_replaced_meanwhile_is_not_kept() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    before, state.now = state.now, object()
    cache.keep(key_of(cache, b"ask"), before, b"answer")
    assert cache.find(key_of(cache, b"ask")) is None


def test_what_is_kept_is_bounded_however_many_requests_are_invented() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    for number in range(10_000):
        cache.keep(key_of(cache, b"%d" % number), state.now, bytes(1_000))
        assert cache.kept_bytes <= KEPT_BYTES_MAX
    assert cache.find(key_of(cache, b"9999")) == bytes(1_000)


def test_an_answer_is_that_of_one_user_at_one_host_by_one_state_of_the_entries() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    client_keys: list[ClientKey] = [
        ANYONE,
        (1, "User:al", "10.0.0.1"),
        (2, "User:al", "10.0.0.1"),
        (1, "User:bo", "10.0.0.1"),
        (1, "User:al", "10.0.0.2"),
    ]
    for number, client_key in enumerate(client_keys):
        assert cache.find(key_of(cache, b"ask", client_key=client_key)) is None
        cache.keep(key_of(cache, b"ask", client_key=client_key), state.now, b"answer %d" % number)
    found = [cache.find(key_of(cache, b"ask", client_key=client_key)) for client_key in client_keys]
    assert found == [b"answer %d" % number for number in range(len(client_keys))]


def test_what_is_kept_is_bounded_however_many_users_come_and_however_long_their_names_are() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    for number in range(20_000):
        client_key = number % 3, f"User:{number:0{1 + number % 4_000}}", "10.0.0.1"
        cache.keep(key_of(cache, b"ask", client_key=client_key), state.now, b"answer")
        held = [*cache._young, *cache._old]
        assert cache.kept_bytes <= KEPT_BYTES_MAX
        assert len(held) <= KEPT_BYTES_MAX // ENTRY_BYTES
        if number % 500 == 0:
            assert sum(len(key[2][1]) for key in held) < cache.kept_bytes


def test_what_is_asked_again_outlives_what_is_asked_once() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    often = key_of(cache, b"often")
    cache.keep(often, state.now, b"answer")
    for number in range(20_000):
        cache.keep(key_of(cache, b"%d" % number), state.now, bytes(1_000))
        assert cache.find(often) == b"answer"
        assert cache.kept_bytes <= KEPT_BYTES_MAX
    assert cache.find(key_of(cache, b"0")) is None


def test_what_is_large_is_not_kept() -> None:
    state = State()
    cache = ResponseCache(lambda: state.now)
    cache.keep(key_of(cache, b"ask"), state.now, bytes(ANSWER_BYTES_MAX + 1))
    assert cache.find(key_of(cache, b"ask")) is None
    large = memoryview(bytes(REQUEST_BYTES_MAX + 5))
    assert cache.key(RequestHeader(3, 12, "c", 4), DOOR, large) is None
