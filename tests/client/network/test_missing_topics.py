"""Times at which a client reports topics that do not exist."""

from ottla.client.network.missing_topics import (
    GRACE_MS,
    MissingTopics,
    missing_match_error,
    missing_topic_error,
)
from ottla.model.errors import ErrorCode

START_MS = 5_000
LATER_MS = START_MS + GRACE_MS


def test_a_topic_is_reported_once_after_the_grace_period() -> None:
    missing = MissingTopics()
    missing.retain({"t"}, START_MS)

    assert missing.due_ms() == LATER_MS
    assert not missing.on_missing("t", LATER_MS - 1)
    assert missing.on_missing("t", LATER_MS)
    assert not missing.on_missing("t", 10 * LATER_MS)
    assert missing.due_ms() is None


def test_a_topic_that_is_created_within_the_grace_period_is_not_reported() -> None:
    missing = MissingTopics()
    missing.retain({"t"}, START_MS)
    missing.retain(set(), LATER_MS - 1)

    assert missing.due_ms() is None
    missing.retain({"t"}, LATER_MS)
    assert not missing.on_missing("t", LATER_MS)


def test_a_reported_topic_is_reported_again_only_if_it_existed_in_the_meantime() -> None:
    missing = MissingTopics()
    missing.retain({"t"}, START_MS)
    assert missing.on_missing("t", LATER_MS)
    missing.retain({"t"}, LATER_MS)
    assert missing.due_ms() is None

    missing.retain(set(), LATER_MS)
    missing.retain({"t"}, LATER_MS)

    assert missing.due_ms() == LATER_MS + GRACE_MS
    assert missing.on_missing("t", LATER_MS + GRACE_MS)


def test_an_error_is_repeated_after_each_grace_period() -> None:
    missing = MissingTopics()
    missing.retain({"t"}, START_MS)

    assert missing.on_missing("t", LATER_MS, is_repeated=True)
    assert not missing.on_missing("t", LATER_MS + 1, is_repeated=True)
    assert missing.due_ms() == LATER_MS + GRACE_MS
    assert missing.on_missing("t", LATER_MS + GRACE_MS, is_repeated=True)


def test_an_inconclusive_response_starts_the_grace_period_again() -> None:
    missing = MissingTopics()
    missing.retain({"a", "b"}, START_MS)
    missing.postpone("a", LATER_MS)

    assert missing.due_ms() == LATER_MS
    assert not missing.on_missing("a", LATER_MS)
    assert missing.on_missing("b", LATER_MS)
    assert missing.due_ms() == LATER_MS + GRACE_MS


def test_a_call_waits_as_long_as_the_one_before() -> None:
    missing = MissingTopics()
    assert not missing.on_missing("t", START_MS)
    missing.stop_waiting("t")

    assert not missing.on_missing("t", LATER_MS)
    assert missing.on_missing("t", LATER_MS + GRACE_MS)
    missing.stop_waiting("t")
    assert not missing.on_missing("t", 10 * LATER_MS)


def test_a_found_topic_may_be_reported_again() -> None:
    missing = MissingTopics()
    assert not missing.on_missing("t", START_MS)
    assert missing.on_missing("t", LATER_MS)
    missing.on_found("t")

    assert not missing.on_missing("t", LATER_MS)
    assert missing.on_missing("t", LATER_MS + GRACE_MS)


def test_the_errors_name_the_subject_and_the_cure() -> None:
    topic, pattern = missing_topic_error("orders"), missing_match_error("or.*")

    assert topic.code is pattern.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "'orders'" in topic.message
    assert "ottla topic create orders" in topic.message
    assert "auto.create.topics.enable" in topic.message
    assert "'or.*'" in pattern.message
