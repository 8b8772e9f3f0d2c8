"""Dead letter topics: their checks, and the content of dead letters."""

import pytest

from ottla.broker.shares.dead_letter_topic import (
    LetterSource,
    TopicOfLetters,
    letter_of,
    refusal_of_topic,
)
from ottla.model.ids import Offset
from ottla.wire.records import Record

SOURCE = LetterSource("workers", "orders", 5, 42, 3, is_rejected=True)


@pytest.mark.parametrize(
    ("topic", "is_auto_created", "reason"),
    [
        (TopicOfLetters("dlq.orders", 2, True), False, None),
        (TopicOfLetters("dlq.orders", 0, False), True, None),
        (TopicOfLetters("dlq.orders", 0, False), False, "does not exist"),
        (TopicOfLetters("dlq.orders", 2, False), True, "accepts no dead letters"),
        (TopicOfLetters("orders", 2, True), False, "is the topic of the rejected"),
        (TopicOfLetters("letters", 2, True), False, "does not begin with dlq."),
        (TopicOfLetters("__letters", 2, True), False, "is an internal topic"),
    ],
)
def test_a_topic_gets_dead_letters_or_a_reason(
    topic: TopicOfLetters, is_auto_created: bool, reason: str | None
) -> None:
    found = refusal_of_topic(topic, source="orders", prefix="dlq.", is_auto_created=is_auto_created)
    assert (found is None) == (reason is None)
    assert reason is None or (found is not None and reason in found)


def test_a_copied_letter_keeps_headers_and_timestamp() -> None:
    record = Record(Offset(42), 1_000, b"key", b"value", (("trace", b"1"),))
    letter = letter_of(SOURCE, record, now_ms=9_000)
    assert (letter.timestamp_ms, letter.key, letter.value) == (1_000, b"key", b"value")
    assert letter.headers == (
        ("trace", b"1"),
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"5"),
        ("__dlq.errors.offset", b"42"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"3"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )


def test_a_letter_without_copy_has_the_cause_only() -> None:
    letter = letter_of(SOURCE._replace(is_rejected=False), None, now_ms=9_000)
    assert (letter.timestamp_ms, letter.key, letter.value) == (9_000, None, None)
    assert letter.headers[-1][1] == b"Offset delivery count exceeded the threshold."
