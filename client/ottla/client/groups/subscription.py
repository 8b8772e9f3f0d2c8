"""What a member of a group wants to read: topics by name, by a pattern here, or by one there.

Pure.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class SubscriptionPattern(NamedTuple):
    """A regular expression of RE2 that the coordinator matches with whole topic names (KIP-848)."""

    pattern: str
    """Regular expression in RE2's syntax."""


class SubscribedTopic(Protocol):
    """What a subscription asks of a topic."""

    @property
    def is_internal(self) -> bool:
        """Whether it is the cluster's own."""
        ...


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None


class Subscription:
    """The topics one member wants; empty when it takes no part."""

    def __init__(
        self,
        topics: Iterable[str] | None = None,
        pattern: str | SubscriptionPattern | None = None,
        exclude: str | None = None,
    ) -> None:
        """`exclude` is a pattern of Python's: topics whose whole name matches it are left out."""
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

    def __bool__(self) -> bool:
        """Return whether it takes part."""
        return not (self.topics is None and self.remote_regex is None and self._regex is None)

    @property
    def topics_to_know(self) -> frozenset[str] | None:
        """The topics to ask the cluster about; None for all of them (a pattern may match any)."""
        if self._regex is not None:
            return None
        return self.topics or frozenset()

    def names(self, known: Mapping[str, SubscribedTopic]) -> frozenset[str]:
        """Return the names it stands for, as far as they are found here."""
        if self._regex is None:
            return self.topics or frozenset()
        return frozenset(
            name
            for name, topic in known.items()
            if self._regex.fullmatch(name)
            and not topic.is_internal
            and not (self._exclude is not None and self._exclude.fullmatch(name))
        )
