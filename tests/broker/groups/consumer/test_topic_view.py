"""Regular expressions over many topics: each evaluation costs only new topics, in slices."""

from collections.abc import Iterable
from typing import Any

import pytest

from ottla.broker.groups.consumer import topic_view
from ottla.broker.groups.consumer.subscription_regex import (
    UNICODE_CLASSES_MAX,
    compile_topic_regex,
    matches,
)
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.model.errors import ErrorCode, RefusedError
from tests.broker.groups.group_bench import GroupBench

COSTLY = "(x?-?){100}y|(.*-.*){50}y"


class View(GroupBench):
    """Topics that are created and deleted, and the evaluations of each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, used: Iterable[str] = ()) -> None:
        super().__init__()
        self.topics = TopicView(lambda: used)
        self.looked_at: list[int] = []
        self.compiled: list[str] = []

        def counted(regex: Any, names: Any) -> frozenset[str]:
            self.looked_at.append(len(names))
            return matches(regex, names)

        def compiled(text: str) -> Any:
            self.compiled.append(text)
            return compile_topic_regex(text)

        monkeypatch.setattr(topic_view, "matches", counted)
        monkeypatch.setattr(topic_view, "compile_topic_regex", compiled)

    def work_off(self) -> int:
        """Do all there is to do; return the number of slices."""
        slices = 0
        while self.topics.has_work:
            self.topics.resolve_slice()
            slices += 1
        return slices

    def found(self, text: str) -> set[str] | None:
        resolved = self.topics.resolve(text)
        return None if resolved is None else set(resolved.topics)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    return View(monkeypatch)


def test_a_new_topic_is_held_against_every_expression_and_no_other_topic_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"topic-.*|{number}" for number in range(1_001)]
    view = View(monkeypatch, texts)
    for number in range(50):
        view.make_topic(f"topic-{number}", 1)
    for text in texts:
        view.topics.resolve(text)
    view.work_off()
    assert sum(view.looked_at) == 50 * 1_001
    view.looked_at.clear()
    view.compiled.clear()
    view.make_topic("topic-new", 1)
    view.work_off()
    assert sum(view.looked_at) == 1_001
    # One program more than are kept may cost the compilation of each, but no look at old topics.
    assert len(view.compiled) <= 1_001
    view.looked_at.clear()
    for text in texts:
        assert len(view.found(text) or ()) == 51
    assert view.looked_at == []


def test_a_costly_expression_is_looked_at_in_small_slices(view: View) -> None:
    names = [f"{'x-' * 100}{number:049}" for number in range(300)]
    for name in names:
        view.make_topic(name, 1)
    assert view.found(COSTLY) is None, "not all at once"
    assert view.work_off() > 50
    assert max(view.looked_at) <= 5
    assert view.found(COSTLY) == set()


def test_a_cheap_expression_does_not_wait_for_a_costly_one(view: View) -> None:
    for number in range(300):
        view.make_topic(f"{'x-' * 100}{number:049}", 1)
    view.topics.resolve(COSTLY)
    view.topics.resolve(f"{COSTLY}|z")
    assert view.found("x.*") is not None
    view.make_topic("xyz", 1)
    view.topics.resolve_slice()
    assert "xyz" in (view.found("x.*") or ())


def test_what_was_known_holds_until_news_have_been_looked_at(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    view.make_topic("a-1", 1)
    assert view.found("a-.*") == {"a-1"}
    monkeypatch.setattr(topic_view, "SLICE_COST", 0)
    view.make_topic("a-2", 1)
    view.drop_topic("a-1")
    view.make_topic("b-1", 1)
    assert view.found("a-.*") == {"a-1"}
    monkeypatch.setattr(topic_view, "SLICE_COST", 1)
    view.work_off()
    assert view.found("a-.*") == {"a-2"}


def test_a_topic_made_again_under_its_name_is_found(view: View) -> None:
    view.make_topic("a", 1)
    assert view.found("a") == {"a"}
    view.drop_topic("a")
    assert view.found("a") == set()
    view.make_topic("a", 1)
    assert view.found("a") == {"a"}


def test_expressions_that_no_group_uses_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    used = ["used-1", "used-2"]
    view = View(monkeypatch, used)
    for number in range(3 * topic_view.PRUNE_COUNT_MIN):
        view.topics.resolve(f"used-{number}")
    assert len(view.topics._resolutions) <= topic_view.PRUNE_COUNT_MIN + len(used)
    view.compiled.clear()
    assert view.found("used-1") == set()
    assert "used-1" in view.topics._resolutions


def test_more_expressions_than_can_be_served_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_view, "REGEX_COUNT_MAX", 600)
    used = [f"used-{number}" for number in range(600)]
    view = View(monkeypatch, used)
    for text in used:
        view.topics.resolve(text)
    with pytest.raises(RefusedError) as refusal:
        view.topics.check("one more")
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert view.found("used-7") == set()


def test_classes_that_take_long_to_compile_are_few(view: View) -> None:
    view.topics.check(r"\pL")
    for text in (r"\pL" * (UNICODE_CLASSES_MAX + 1), r"[\PL\pN]" * UNICODE_CLASSES_MAX):
        with pytest.raises(RefusedError, match="Unicode classes"):
            view.topics.check(text)
    assert len(view.compiled) == 3
