"""What groups need to know of topics: their names, their partitions, what a regex means.  Pure.

A regular expression is held against every topic once; after that only against topics that are
made.  What that costs is bounded at each place: a slice of work at once, the rest in slices that
the driver asks for between other tasks (`resolve_slice`), the cheapest expression first.  Until a
first look is over, `resolve` answers that it is not known yet; until news are looked at, with what
was known before them.

What was found is kept for every expression in use.  Compiled programs are kept for those used last:
one more expression than that costs its own compilation with each change of topics, nothing else.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from ottla.broker.groups.subscription_regex import (
    TopicRegex,
    compile_topic_regex,
    instruction_count,
    matches,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, Topic
from ottla.model.errors import ErrorCode, RefusedError

SLICE_COST = 1_000_000
"""Instructions of expressions times characters of names that are looked at in one go: at most some
5 ms.  With more, costly expressions hold the loop for longer; with less, a member waits for its
work until its next heartbeat where topics are few."""

COMPILE_COST = SLICE_COST // 2
"""What it counts to compile an expression again: a millisecond or two, at most ten."""

PROGRAMS_MAX = 1_000
"""Compiled expressions kept: at 64 KiB each at the most, 64 MB."""

REGEX_COUNT_MAX = 5_000
"""Expressions known at a time.  Each costs its share of every new topic; one more is refused."""

SWEEP_COUNT_MIN = 500
"""Expressions that are known before those that no group uses are looked for."""


class _News(NamedTuple):
    """Topics that came and went with one image."""

    gone: frozenset[str]
    created: tuple[str, ...]


class _Resolution:
    """What is known of one regex: all, when there are no news to look at."""

    __slots__ = ("at", "found", "instructions", "is_known", "news", "topics", "version")

    def __init__(self, instructions: int) -> None:
        self.instructions = instructions
        self.topics: frozenset[str] = frozenset()
        """As of the version."""
        self.version = -1
        self.is_known = False
        self.news: deque[_News] = deque()
        self.at = 0
        """Names of the first news that were looked at."""
        self.found: set[str] = set()
        """What `topics` will be when all news have been looked at."""


class Resolved(NamedTuple):
    """The topics that a regex means, as of an offset in the metadata log."""

    topics: frozenset[str]
    version: int


class TopicView:
    """The topics of one image; `follow` brings it to the next one."""

    def __init__(self, used_regexes: Callable[[], Iterable[str]] = tuple) -> None:
        """`used_regexes` returns the expressions that groups use: no other need be known."""
        self.image: MetadataImage = EMPTY
        self._used_regexes = used_regexes
        self._names: set[str] = set()
        self._resolutions: dict[str, _Resolution] = {}
        self._programs: OrderedDict[str, TopicRegex] = OrderedDict()
        self._open: list[tuple[int, int, str]] = []
        """A heap of the expressions with news, by what a look at one costs."""
        self._sequence = count()
        self._sweep_at = SWEEP_COUNT_MIN

    @property
    def has_work(self) -> bool:
        """Whether there is an expression with news."""
        return bool(self._open)

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
        if gone or created:
            news = _News(frozenset(deleted), tuple(created))
            for text, resolution in self._resolutions.items():
                self._tell(text, resolution, news)
            self._work(SLICE_COST)
        return frozenset(deleted | created | resized)

    def check(self, text: str) -> None:
        """Refuse (INVALID_REGULAR_EXPRESSION) what is no regular expression, or one too many."""
        if text in self._resolutions:
            return
        self._program(text)
        if len(self._resolutions) >= self._sweep_at:
            self._sweep()
        if len(self._resolutions) >= REGEX_COUNT_MAX:
            raise RefusedError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"{REGEX_COUNT_MAX} regular expressions are in use with this coordinator already.",
            )

    def resolve(self, text: str) -> Resolved | None:
        """Return the topics that a regex means; None if that is not known yet.

        Raises INVALID_REGULAR_EXPRESSION as `check` does.
        """
        found = self._resolutions.get(text)
        if found is None:
            self.check(text)
            found = _Resolution(instruction_count(self._program(text)))
            self._resolutions[text] = found
            self._tell(text, found, _News(frozenset(), tuple(self._names)))
            self._look(text, found, SLICE_COST)
        return Resolved(found.topics, found.version) if found.is_known else None

    def resolve_slice(self) -> bool:
        """Look at some more topics; return whether an expression means others by that."""
        return self._work(SLICE_COST)

    def _tell(self, text: str, resolution: _Resolution, news: _News) -> None:
        if not resolution.news:
            heappush(self._open, (resolution.instructions, next(self._sequence), text))
        resolution.news.append(news)

    def _work(self, cost: int) -> bool:
        """Look at news for about so much; return whether an expression means others by that."""
        is_other = False
        while self._open and cost > 0:
            text = self._open[0][-1]
            found = self._resolutions.get(text)
            if found is None or not found.news:
                heappop(self._open)
                continue
            before = found.topics if found.is_known else None
            cost = self._look(text, found, cost)
            is_other = is_other or (found.is_known and found.topics != before)
        return is_other

    def _look(self, text: str, found: _Resolution, cost: int) -> int:
        """Look at the news of one expression; return what is left of the cost."""
        while found.news and cost > 0:
            gone, created = found.news[0]
            if found.at == 0:
                found.found -= gone
            names = []
            while found.at < len(created) and cost > 0:
                name = created[found.at]
                found.at += 1
                cost -= found.instructions * (len(name) + 1)
                # Meanwhile some may be gone.
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

    def _sweep(self) -> None:
        """Forget the expressions that no group uses any more."""
        used = set(self._used_regexes())
        self._resolutions = {
            text: found for text, found in self._resolutions.items() if text in used
        }
        self._sweep_at = max(SWEEP_COUNT_MIN, 2 * len(self._resolutions))
