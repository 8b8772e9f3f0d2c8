"""Rules for the report of topics that do not exist.

Pure. A subject is the name of a topic, or a pattern that matches no topic. A subject is reported
only after it has been missing for `GRACE_MS`, because a topic is unknown for a moment while it is
being created. It is reported once, and again only if it has existed in the meantime.
"""

from collections.abc import Collection

from ottla.model.errors import ErrorCode, RefusedError

GRACE_MS = 1_000
"""Time, in ms, for which a topic must be missing before the client reports it. With a smaller
value, the client reports topics that are just being created. With a larger value, the application
receives the error later."""


class MissingTopics:
    """Missing topic names and patterns of one client. The object also stores whether each was
    reported."""

    def __init__(self, grace_ms: int = GRACE_MS) -> None:
        self._grace_ms = grace_ms
        self._since_ms: dict[str, int] = {}
        """Time in ms at which the grace period began, for each subject that is missing and not
        reported yet."""
        self._reported: set[str] = set()

    def retain(self, unknown: Collection[str], now_ms: int) -> None:
        """Replace the set of missing topics and patterns by `unknown`: the topics and patterns that
        the client's latest metadata lacks."""
        self._reported.intersection_update(unknown)
        for subject in self._since_ms.keys() - unknown:
            del self._since_ms[subject]
        for subject in unknown:
            if subject not in self._reported:
                self._since_ms.setdefault(subject, now_ms)

    def due_ms(self) -> int | None:
        """Return the time, in ms, at which the first grace period ends. The client must request
        metadata by then. Returns None if nothing is missing."""
        return min(self._since_ms.values()) + self._grace_ms if self._since_ms else None

    def on_missing(self, subject: str, now_ms: int, *, is_repeated: bool = False) -> bool:
        """Process a response which shows that a topic or pattern is missing. Returns True if the
        client must report it now.

        With `is_repeated`, the topic or pattern is reported again after each further grace period.
        """
        if subject in self._reported:
            return False
        if now_ms < self._since_ms.setdefault(subject, now_ms) + self._grace_ms:
            return False
        if is_repeated:
            self._since_ms[subject] = now_ms
        else:
            del self._since_ms[subject]
            self._reported.add(subject)
        return True

    def postpone(self, subject: str, now_ms: int) -> None:
        """Process a response which does not show whether a topic or pattern is missing. The grace
        period of the topic or pattern starts again."""
        if subject in self._since_ms:
            self._since_ms[subject] = now_ms

    def stop_waiting(self, subject: str) -> None:
        """Process the end of a call that waited for a topic. The next call that waits for this
        topic starts a new grace period."""
        self._since_ms.pop(subject, None)

    def on_found(self, subject: str) -> None:
        """Process a response which shows that a topic or pattern is no longer missing."""
        self._since_ms.pop(subject, None)
        self._reported.discard(subject)


def missing_topic_error(topic: str) -> RefusedError:
    """Return the error for a topic that does not exist, with its name and advice."""
    return RefusedError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no topic {topic!r}; create it with 'ottla topic create {topic}', or set "
        "auto.create.topics.enable on the brokers, so that the first record creates it",
    )


def missing_match_error(pattern: str) -> RefusedError:
    """Return the error for a pattern that matches no topic, with the pattern and advice."""
    return RefusedError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"no topic matches the pattern {pattern!r}, which must match whole names; create one with "
        "'ottla topic create NAME', or correct the pattern",
    )
