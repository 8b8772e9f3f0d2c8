"""View of the cluster's topics for groups: names, partitions, and matches of regular expressions.
Pure.

A regular expression is matched with every topic once, and afterwards only with new topics. Each
call performs a bounded amount of work, the cheapest expressions first. The driver requests further
slices of work between other tasks (`resolve_slice`). `resolve` returns None until the first search
is complete. During a search of new topics, it returns the previous result.

The matches are stored for every expression in use. Compiled programs are stored only for recently
used expressions. Other expressions are compiled again at each change of topics.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple
from uuid import UUID

from ottla.broker.groups.consumer.subscription_regex import (
    TopicRegex,
    compile_topic_regex,
    instruction_count,
    matches,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, Topic
from ottla.model.errors import ErrorCode, RefusedError

SLICE_COST = 1_000_000
"""Maximum cost of one step that matches topic names with regular expressions. A step takes at most
about 5 ms. The unit is an instruction of an expression, applied to one character of a topic name.
With a larger value, costly expressions block the event loop longer. With a smaller value, even with
few topics a member must wait for its partitions until its next heartbeat."""

COMPILE_COST = SLICE_COST // 2
"""Cost of compiling a regular expression again, in the unit of SLICE_COST. A compilation takes one
or two milliseconds, at most ten."""

PROGRAMS_MAX = 1_000
"""Maximum number of compiled regular expressions that are stored. At 64 KiB each, they take at most
64 MB."""

REGEX_COUNT_MAX = 5_000
"""Maximum number of regular expressions in use by groups. A further expression is refused, because
each expression takes time for every new topic."""

PRUNE_COUNT_MIN = 500
"""Number of stored regular expressions above which the unused expressions are deleted."""


class _TopicChanges(NamedTuple):
    """Topics that one metadata image created and deleted. The regular expressions are matched with
    them later."""

    gone: frozenset[str]
    created: tuple[str, ...]


class _Resolution:
    """Topics that match one regular expression. The result is complete if all created and deleted
    topics have been compared with the expression."""

    __slots__ = ("at", "found", "instructions", "is_known", "news", "topics", "version")

    def __init__(self, instructions: int) -> None:
        self.instructions = instructions
        self.topics: frozenset[str] = frozenset()
        """Names of the matching topics as of the last complete search."""
        self.version = -1
        self.is_known = False
        self.news: deque[_TopicChanges] = deque()
        self.at = 0
        """Number of topic names that have been matched already in the oldest entry of `news`, the
        list of topic changes."""
        self.found: set[str] = set()
        """Names of the matching topics in the current search. They become `topics` when the search
        of all entries in `news` is complete."""


class ResolvedTopics(NamedTuple):
    """Topics that match a regular expression, as of an offset in the metadata log."""

    topics: frozenset[str]
    version: int


class TopicView:
    """Topics of the current metadata image, in the form that groups need. `follow` applies the next
    image."""

    def __init__(self, used_regexes: Callable[[], Iterable[str]] = tuple) -> None:
        """Create an empty view of the cluster's topics. `used_regexes` returns the regular
        expressions that groups use. Stored results of all other expressions may be deleted."""
        self.image: MetadataImage = EMPTY
        self._used_regexes = used_regexes
        self._names: set[str] = set()
        self._resolutions: dict[str, _Resolution] = {}
        self._programs: OrderedDict[str, TopicRegex] = OrderedDict()
        self.queue: list[tuple[int, int, str]] = []
        """Heap of the regular expressions that still have topics to match, ordered by the cost of
        matching them. It is a plain attribute and not a property for speed, because it is read at
        each commit."""
        self._sequence = count()
        self._prune_at = PRUNE_COUNT_MIN

    @property
    def has_work(self) -> bool:
        """True if a regular expression has not been matched with all created and deleted topics
        yet."""
        return bool(self.queue)

    def topic(self, name: str) -> Topic | None:
        """Return the topic named `name` in the current metadata image, or None if it does not
        exist."""
        return self.image.topic(name)

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> frozenset[str]:
        """Apply a new metadata image. Returns the names of the topics that were created or deleted,
        got more partitions, or may have replicas in other racks."""
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
        moved = self._with_other_racks(delta, image)
        self.image = image
        gone = deleted - created
        self._names -= gone
        self._names |= created
        if gone or created:
            news = _TopicChanges(frozenset(deleted), tuple(created))
            for text, resolution in self._resolutions.items():
                self._queue(text, resolution, news)
            self._work(SLICE_COST)
        return frozenset(deleted | created | resized | moved)

    def _with_other_racks(self, delta: MetadataDelta, image: MetadataImage) -> set[str]:
        """Return the names of topics whose replicas may have moved to other racks since the current
        image."""
        before = self.image
        for node in delta.changed_brokers:
            old, new = before.brokers.get(node), image.brokers.get(node)
            if old is not None and new is not None and old.rack != new.rack:
                return set(self._names)  # It may have replicas of any topic.
        if not any(broker.rack for broker in image.brokers.values()):
            return set()
        moved: set[UUID] = set()
        for at in delta.changed_partitions:
            was, now = before.partition(at), image.partition(at)
            if was is not None and now is not None and was.replicas != now.replicas:
                moved.add(at.topic_id)
        return {image.topics[topic_id].name for topic_id in moved}

    def check(self, text: str) -> None:
        """Raise RefusedError if a regular expression is invalid, or if REGEX_COUNT_MAX expressions
        are in use already."""
        if text in self._resolutions:
            return
        self._program(text)
        if len(self._resolutions) >= self._prune_at:
            self._prune()
        if len(self._resolutions) >= REGEX_COUNT_MAX:
            raise RefusedError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"{REGEX_COUNT_MAX} regular expressions are in use with this coordinator already.",
            )

    def resolve(self, text: str) -> ResolvedTopics | None:
        """Return the topics that match a regular expression, or None if they are not known yet.

        Raises the same errors as `check`.
        """
        found = self._resolutions.get(text)
        if found is None:
            self.check(text)
            found = _Resolution(instruction_count(self._program(text)))
            self._resolutions[text] = found
            self._queue(text, found, _TopicChanges(frozenset(), tuple(self._names)))
            self._look(text, found, SLICE_COST)
        return ResolvedTopics(found.topics, found.version) if found.is_known else None

    def resolve_slice(self) -> bool:
        """Match regular expressions with some more topics. Returns True if the topics of an
        expression changed."""
        return self._work(SLICE_COST)

    def _queue(self, text: str, resolution: _Resolution, news: _TopicChanges) -> None:
        if not resolution.news:
            heappush(self.queue, (resolution.instructions, next(self._sequence), text))
        resolution.news.append(news)

    def _work(self, cost: int) -> bool:
        """Match regular expressions with created and deleted topics, up to the cost `cost`. Returns
        True if an expression's topics changed."""
        is_other = False
        while self.queue and cost > 0:
            text = self.queue[0][-1]
            found = self._resolutions.get(text)
            if found is None or not found.news:
                heappop(self.queue)
                continue
            before = found.topics if found.is_known else None
            cost = self._look(text, found, cost)
            is_other = is_other or (found.is_known and found.topics != before)
        return is_other

    def _look(self, text: str, found: _Resolution, cost: int) -> int:
        """Match one regular expression with the created and deleted topics. Returns the remaining
        cost."""
        while found.news and cost > 0:
            gone, created = found.news[0]
            if found.at == 0:
                found.found -= gone
            names = []
            while found.at < len(created) and cost > 0:
                name = created[found.at]
                found.at += 1
                cost -= found.instructions * (len(name) + 1)
                # Some may have been deleted meanwhile.
                if name in self._names:
                    names.append(name)
            if names:
                cost -= 0 if text in self._programs else COMPILE_COST
                found.found |= matches(self._program(text), names)
            cost -= found.instructions
            if found.at == len(created):
                found.news.popleft()
                found.at = 0
        if not found.news and (not found.is_known or found.topics != found.found):
            found.topics = frozenset(found.found)
        if not found.news:
            found.is_known = True
            found.version = self.image.provenance.offset
        return cost

    def _program(self, text: str) -> TopicRegex:
        program = self._programs.get(text)
        if program is None:
            program = self._programs[text] = compile_topic_regex(text)
            if len(self._programs) > PROGRAMS_MAX:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(text)
        return program

    def _prune(self) -> None:
        """Delete the regular expressions that no group uses any longer."""
        used = set(self._used_regexes())
        self._resolutions = {
            text: found for text, found in self._resolutions.items() if text in used
        }
        self._prune_at = max(PRUNE_COUNT_MIN, 2 * len(self._resolutions))
