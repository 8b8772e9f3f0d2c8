"""Finds the topics that `ottla consume` reads, by topic names and regular expressions."""

import re
from collections.abc import Iterable, Sequence

from ottla.cli.suggestions import did_you_mean
from ottla.client.network.cluster import Cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError

PATTERN_MARK = "^"
"""Prefix that marks a topic name on the command line as a regular expression, as in librdkafka."""


class WantedTopics:
    """Names and regular expressions of topics. As in librdkafka, an expression that begins with ^
    matches the beginning of a name. With --regex, every other expression matches a whole name, as
    in the Java client."""

    def __init__(self, words: Sequence[str], *, is_regex: bool) -> None:
        patterns = [one for one in words if is_regex or one.startswith(PATTERN_MARK)]
        self.is_pattern = bool(patterns)
        """True if any of the command's topic arguments is a regular expression."""

        self.names = [one for one in dict.fromkeys(words) if one not in patterns]
        """Topic names on the command line that are not regular expressions."""

        self.pattern = "|".join([*map(_whole, patterns), *map(re.escape, self.names)])
        """One regular expression that matches the whole names of all wanted topics."""

        self._regex = _compiled(patterns, self.pattern)

    def matches(self, name: str) -> bool:
        """Return whether the command line selects the topic with this name."""
        return self._regex.fullmatch(name) is not None


async def topics_of(cluster: Cluster, wanted: WantedTopics) -> list[str]:
    """Return the wanted topics that exist. Internal topics are returned only if the command line
    contains their full names.

    Raises RefusedError if a full topic name on the command line does not exist.
    """
    found = {
        topic.name or "": topic.is_internal
        for topic in (await cluster.metadata()).topics
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    for name in wanted.names:
        _check_known(name, found)
    matching = (name for name, is_internal in found.items() if not is_internal)
    return sorted({*wanted.names, *filter(wanted.matches, matching)})


def _check_known(name: str, found: Iterable[str]) -> None:
    if name not in found:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {name!r}{did_you_mean(name, found)}; see 'ottla topic list'",
        )


def _whole(pattern: str) -> str:
    """Return a regular expression that matches whole topic names. If `pattern` begins with ^, the
    result matches all names whose beginning the pattern matches."""
    return f"(?:{pattern}).*" if pattern.startswith(PATTERN_MARK) else f"(?:{pattern})"


def _compiled(patterns: Iterable[str], whole: str) -> re.Pattern[str]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError("TOPIC", f"{pattern!r} is no regular expression: {error}") from None
    return re.compile(whole)
