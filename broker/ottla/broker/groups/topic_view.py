"""What groups need to know of topics: their names, their partitions, what a regex means.  Pure.

A regular expression is held against every topic once; after that only against topics that are
made.  Where there are many topics even once is too long to do in one go: `resolve` says that it is
not known yet, and the driver has it found out in slices (`resolve_slice`).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from ottla.broker.groups.subscription_regex import TopicRegex, compile_topic_regex, matches
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, Topic

AT_ONCE_COUNT = 1_000
"""So many topics are looked at in one go: a member is given its work with its first answer.  With
more, a slow regex holds the loop for longer; with fewer, members wait for their next heartbeat."""

SLICE_COUNT = 500
"""Topics that a regex is held against at a time: about a millisecond's work, and at most 20."""

REGEX_COUNT_MAX = 1_000
"""Regexes that are kept resolved; one that groups use beyond that is found out again when asked."""


class _Resolution:
    """What is known of one regex: all, when no topics are left to look at."""

    __slots__ = ("left", "regex", "topics")

    def __init__(self, regex: TopicRegex, names: Iterable[str]) -> None:
        self.regex = regex
        self.topics: frozenset[str] = frozenset()
        self.left: Iterator[str] | None = iter(tuple(names))


class Resolved(NamedTuple):
    """The topics that a regex means, as of an offset in the metadata log."""

    topics: frozenset[str]
    version: int


class TopicView:
    """The topics of one image; `follow` brings it to the next one."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY
        self._names: set[str] = set()
        self._resolutions: dict[str, _Resolution] = {}
        self.unresolved: list[str] = []
        """Regexes that somebody asked for and that take more than one slice."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic of that name."""
        return self.image.topic(name)

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> frozenset[str]:
        """Go on to an image; return the names of topics that came, went or grew."""
        if self.image is EMPTY or delta.base.provenance != self.image.provenance:
            delta = MetadataDelta.between(self.image, image)
        deleted = {topic.name for topic in delta.deleted_topics}
        created: set[str] = set()
        resized: set[str] = set()
        for topic_id in delta.changed_topics:
            old, new = self.image.topics.get(topic_id), image.topics[topic_id]
            if old is None:
                created.add(new.name)
            elif len(old.partitions) != len(new.partitions):
                resized.add(new.name)
        self.image = image
        gone = deleted - created
        self._names -= gone
        self._names |= created
        for resolution in self._resolutions.values():
            found = matches(resolution.regex, created) if created else frozenset()
            if found or not gone.isdisjoint(resolution.topics):
                resolution.topics = (resolution.topics - gone) | found
        return frozenset(deleted | created | resized)

    def resolve(self, text: str) -> Resolved | None:
        """Return the topics that a regex means; None if that is not known yet.

        INVALID_REGULAR_EXPRESSION when it is none.
        """
        found = self._resolutions.get(text)
        if found is None:
            found = _Resolution(compile_topic_regex(text), self._names)
            if len(self._resolutions) >= REGEX_COUNT_MAX:
                self._resolutions.pop(next(iter(self._resolutions)))
            self._resolutions[text] = found
            if len(self._names) > AT_ONCE_COUNT:
                self.unresolved.append(text)
            while len(self._names) <= AT_ONCE_COUNT and found.left is not None:
                self._look_at_more(found)
        if found.left is not None:
            return None
        return Resolved(found.topics, self.image.provenance.offset)

    def resolve_slice(self) -> bool:
        """Look at some more topics; say whether a regex is known by that."""
        while self.unresolved:
            found = self._resolutions.get(self.unresolved[-1])
            if found is None or found.left is None:
                self.unresolved.pop()
                continue
            self._look_at_more(found)
            return found.left is None
        return False

    def _look_at_more(self, found: _Resolution) -> None:
        assert found.left is not None
        names = tuple(islice(found.left, SLICE_COUNT))
        # Meanwhile some may be gone.
        here = [name for name in names if name in self._names]
        found.topics |= matches(found.regex, here)
        if len(names) < SLICE_COUNT:
            found.left = None
