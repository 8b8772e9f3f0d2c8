"""The subscription of a group member: to topics by name, or by a pattern.

Pure. The client evaluates a Python pattern, the coordinator an RE2 pattern.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class SubscriptionPattern(NamedTuple):
    """A regular expression (RE2) that the coordinator matches against whole topic names
    (KIP-848)."""

    pattern: str
    """Regular expression in the syntax of RE2."""


class SubscribedTopic(Protocol):
    """Interface of a topic, with the properties that a subscription needs."""

    @property
    def is_internal(self) -> bool:
        """True for an internal topic of the cluster."""
        ...


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None


class Subscription:
    """Topics that one group member subscribes to, by name or by pattern. `bool(subscription)` is
    False if the member subscribes to no topics."""

    def __init__(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | SubscriptionPattern | None = None,
        exclude: str | None = None,
    ) -> None:
        """Initialise with topic names, or with one pattern of topic names.

        `exclude` is a Python pattern. Topics whose whole name matches `exclude` are omitted.
        """
        self.topics = None if topics is None else frozenset(topics)
        is_remote = isinstance(pattern, SubscriptionPattern)
        self.remote_regex = pattern.pattern if isinstance(pattern, SubscriptionPattern) else None
        self._regex = None if pattern is None or is_remote else _compiled(str(pattern))
        if exclude is not None and self._regex is None:
            raise ValueError(
                "exclude needs a pattern that is matched here: the coordinator matches a "
                "SubscriptionPattern, and named topics are not searched"
            )
        self._exclude = None if exclude is None else _compiled(exclude)

    @property
    def local_pattern(self) -> str | None:
        """The Python pattern of topic names, or None if the subscription has none."""
        return None if self._regex is None else self._regex.pattern

    def missing(self, known: Mapping[str, SubscribedTopic]) -> frozenset[str]:
        """Return the subscribed names that are not in `known`, or the Python pattern if it matches
        no known topic.

        An RE2 pattern is never missing, because only the coordinator knows which topics it matches.
        """
        if self._regex is None:
            return (self.topics or frozenset()).difference(known)
        if any(self._matches(name, topic) for name, topic in known.items()):
            return frozenset()
        return frozenset({self._regex.pattern})

    def __bool__(self) -> bool:
        """Return whether the member subscribes to any topic or pattern."""
        return not (self.topics is None and self.remote_regex is None and self._regex is None)

    @property
    def topics_to_know(self) -> frozenset[str] | None:
        """Topics whose metadata the subscription needs. None means all topics, because a pattern
        may match any of them."""
        if self._regex is not None:
            return None
        return self.topics or frozenset()

    def names(self, known: Mapping[str, SubscribedTopic]) -> frozenset[str]:
        """Return the names of the topics in `known` that the subscription matches."""
        if self._regex is None:
            return self.topics or frozenset()
        return frozenset(name for name, topic in known.items() if self._matches(name, topic))

    def _matches(self, name: str, topic: SubscribedTopic) -> bool:
        return (
            self._regex is not None
            and self._regex.fullmatch(name) is not None
            and not topic.is_internal
            and not (self._exclude is not None and self._exclude.fullmatch(name))
        )
