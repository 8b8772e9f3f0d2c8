"""Our errors are printed as one sentence; the traceback is hidden for as long as the error
lives."""

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import (
    ConfigError,
    CorruptDataError,
    ErrorCode,
    OttlaError,
    ProtocolError,
    RefusedError,
)
from ottla.pipeline.one_sentence import HIDE_TRACEBACK, NAME, TopicError, one_sentence, sentence_of


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin and end each test without an error that still lives in a traceback."""
    gc.collect()
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    yield
    gc.collect()


SENTENCES: list[tuple[Callable[[], OttlaError], str]] = [
    (lambda: ConfigError("startingOffsets", "is 7"), "startingOffsets: is 7"),
    (
        lambda: RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 't'"),
        "there is no topic 't'",
    ),
    (lambda: CorruptDataError("t-0 at 7"), "t-0 at 7"),
    (lambda: ProtocolError("no\nlength"), "no length"),
    (lambda: ConnectionLostError("no listener"), "can not read topics: no listener"),
]


@pytest.mark.parametrize(("make", "sentence"), SENTENCES)
def test_an_error_of_the_user_or_the_cluster_is_one_sentence(
    make: Callable[[], OttlaError], sentence: str
) -> None:
    for one in (make(), ExceptionGroup("a nursery", [make()])):
        with pytest.raises(TopicError) as raised, one_sentence("read topics"):
            raise one
        assert str(raised.value) == sentence
        assert raised.value.__suppress_context__


def test_a_bug_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(AssertionError), one_sentence("read topics"):
        raise AssertionError("we lie")
    assert HIDE_TRACEBACK not in os.environ


def test_a_sentence_passes_unchanged_through_a_second_place() -> None:
    with pytest.raises(TopicError, match=r"^t: gone$"), one_sentence("b"), one_sentence("a"):
        raise ConfigError("t", "gone")


def test_the_traceback_is_hidden_until_the_error_is_reported() -> None:
    try:
        with one_sentence("read topics"):
            raise ConfigError("t", "gone")
    except TopicError:
        assert os.environ[HIDE_TRACEBACK] == "1"
    gc.collect()
    assert HIDE_TRACEBACK not in os.environ


def test_what_the_user_hides_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_TRACEBACK, "true")
    try:
        with one_sentence("read topics"):
            raise ConfigError("t", "gone")
    except TopicError:
        pass
    gc.collect()
    assert os.environ[HIDE_TRACEBACK] == "true"


def test_our_sentence_is_found_in_what_spark_made_of_it() -> None:
    seen = f"[PYTHON_DATA_SOURCE_ERROR] Failed when …: {NAME}: there is no topic 't'\n\tat org.…"
    assert sentence_of(RuntimeError(seen)) == "there is no topic 't'"
    assert sentence_of(TopicError("gone")) == "gone"
    assert sentence_of(RuntimeError("of foreign code")) is None
