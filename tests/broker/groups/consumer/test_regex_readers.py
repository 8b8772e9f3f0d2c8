"""Topics that match a group's regular expression: only those that all its subscribers may
describe."""

from typing import Any

from ottla.broker.groups.consumer.regex_readers import DECIDED_AT_ONCE, READERS_MAX, RegexReaders
from ottla.model.security.acls import AclOperation, ResourceType

TOPICS = frozenset(("a", "b", "c"))


class Reader:
    """The permissions of one principal."""

    def __init__(self, principal: str, *visible: str) -> None:
        self.principal = principal
        self.visible = set(visible)
        self.version = 1
        self.asked: list[str] = []

    def may(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        assert (operation, resource_type) == (AclOperation.DESCRIBE, ResourceType.TOPIC)
        self.asked.append(name)
        return name in self.visible


def readers(*noted: Any) -> RegexReaders:
    made = RegexReaders()
    for one in noted:
        made.note(one)
    return made


def test_without_an_authorizer_all_is_seen() -> None:
    assert RegexReaders().seen(TOPICS) == TOPICS


def test_a_topic_is_seen_if_all_who_subscribe_may_see_it() -> None:
    assert readers(Reader("ann", "a", "b")).seen(TOPICS) == {"a", "b"}
    both = readers(Reader("ann", "a", "b"), Reader("ben", "b", "c"))
    assert both.seen(TOPICS) == {"b"}


def test_each_topic_is_decided_once_until_something_changes() -> None:
    ann = Reader("ann", "a")
    found: Any = readers(ann)
    found.seen(TOPICS)
    found.seen(TOPICS | {"d"})
    assert sorted(ann.asked) == ["a", "b", "c", "d"]
    assert not found.note(ann)
    ann.version, ann.visible = 2, {"c"}
    assert found.note(ann)
    assert found.seen(TOPICS) == {"c"}


def test_a_topic_that_goes_and_comes_back_is_decided_again() -> None:
    ann = Reader("ann", "a")
    found = readers(ann)
    assert found.seen(TOPICS) == {"a"}
    assert found.seen(frozenset("b")) == frozenset()
    ann.visible = {"b"}
    assert found.seen(TOPICS) == frozenset()  # b was decided, and nothing said otherwise
    assert ann.asked.count("a") == 2


def test_very_many_topics_are_decided_with_several_heartbeats() -> None:
    names = frozenset(f"t{number}" for number in range(2 * DECIDED_AT_ONCE + 1))
    ann = Reader("ann", *names)
    found: Any = readers(ann)
    sizes = [len(found.seen(names))]
    while found.note(ann):
        sizes.append(len(found.seen(names)))
    assert sizes == [DECIDED_AT_ONCE, 2 * DECIDED_AT_ONCE, len(names)]


def test_what_is_decided_again_is_kept_until_then() -> None:
    names = frozenset(f"t{number}" for number in range(DECIDED_AT_ONCE + 10))
    ann = Reader("ann", *names)
    found: Any = readers(ann)
    while len(found.seen(names)) < len(names):
        pass
    ann.version, ann.visible = 2, set()
    assert found.note(ann)
    assert len(found.seen(names)) == 10
    assert found.note(ann)
    assert found.seen(names) == frozenset()


def test_principals_beyond_a_bound_cost_nothing() -> None:
    many: Any = [Reader(f"u{number}", "a") for number in range(READERS_MAX + 5)]
    found = readers(*many)
    assert found.seen(TOPICS) == {"a"}
    assert [bool(one.asked) for one in many] == [True] * READERS_MAX + [False] * 5


def test_a_principal_that_was_silent_for_an_interval_limits_the_others_no_longer() -> None:
    ann, ben = Reader("ann", "a", "b"), Reader("ben", "b")
    found: Any = readers(ann, ben)
    assert found.seen(TOPICS) == {"b"}
    assert not found.forget_silent(), "both spoke since the beginning"
    found.note(ann)
    assert found.seen(TOPICS) == {"b"}
    assert found.forget_silent()
    assert found.seen(TOPICS) == {"a", "b"}
    assert not found.forget_silent(), "a group in which all are silent keeps what it knows"
    assert found.seen(TOPICS) == {"a", "b"}
