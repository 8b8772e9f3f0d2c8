"""Topics of one benchmark run. New topics get unique names, and are deleted at the end of the run.

If a topic contains records of an earlier run, the results of `consume` are two to three times
worse. A run without a given topic therefore creates its own topic, and deletes it at the end, even
after Ctrl-C, SIGTERM and errors. A topic that the user names is created if it does not exist, and
kept.
"""

import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import trio

from ottla.bench.load import Load, make_topic
from ottla.client import open_admin
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.visible_text import visible
from ottla.node.local.interrupts_driver import interrupted_by_sigterm

PREFIX = "ottla-bench"
DELETE_TIMEOUT_S = 15.0
"""Time limit in seconds for deleting a run's topics. The cluster may be down, because the run
itself may have killed it."""


class RunTopics:
    """Topics that one benchmark run uses: new topics, or topics that the user has named."""

    def __init__(self, bootstrap: str, given: str | None, *, is_kept: bool) -> None:
        self.name = given or fresh_name()
        """Name of the benchmark run's topic. If the run has several topics, it is the prefix of
        their names."""

        self.is_own = given is None
        """True if the benchmark run creates new topics, False if the user has named existing
        topics."""

        self._bootstrap = bootstrap
        self._is_kept = is_kept or not self.is_own
        self._claimed: dict[str, None] = {}

    def claim(self, name: str) -> str:
        """Register a topic that the benchmark run will create, so that it is deleted at the end of
        the run. Returns the topic's name."""
        self._claimed[name] = None
        return name

    def make(self, load: Load) -> None:
        """Create the topic of a load if it does not exist."""
        self.claim(load.topic)
        try:
            make_topic(load)
        except RefusedError:
            del self._claimed[load.topic]  # there is no topic to delete
            raise

    def close(self) -> None:
        """Delete the topics that the run has created itself. If the user keeps them, print their
        names on standard error instead."""
        names = list(self._claimed)
        if not names:
            return
        if self._is_kept:
            _note(f"kept {_listed(names)}")
            return
        try:
            left = trio.run(partial(_delete, self._bootstrap, names))
        except (OttlaError, OSError, KeyboardInterrupt) as error:
            reason = str(error) or "interrupted"
            _note(f"{_listed(names)} could not be deleted ({reason})")
            return
        for name, reason in left.items():
            _note(f"topic {name} could not be deleted ({reason})")


@contextmanager
def open_topics(bootstrap: str, given: str | None, *, is_kept: bool) -> Iterator[RunTopics]:
    """Yield the topics of a benchmark run. Topics that the run has created are deleted at the end,
    even if the run fails."""
    topics = RunTopics(bootstrap, given, is_kept=is_kept)
    with interrupted_by_sigterm():
        try:
            yield topics
        finally:
            topics.close()


def fresh_name() -> str:
    """Return a new topic name that no other benchmark run uses."""
    return f"{PREFIX}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


async def _delete(bootstrap: str, names: Sequence[str]) -> dict[str, str]:
    """Delete topics of a benchmark run. Returns the reasons why topics could not be deleted, by
    topic."""
    with trio.move_on_after(DELETE_TIMEOUT_S):
        async with open_admin(bootstrap) as admin:
            outcomes = await admin.delete_topics(names)
            return {
                name: refusal.message
                for name, refusal in outcomes.items()
                if refusal is not None and refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
    return dict.fromkeys(names, f"no answer in {DELETE_TIMEOUT_S:g} s")


def _listed(names: Sequence[str]) -> str:
    return f"topic{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _note(text: str) -> None:
    print(visible(f"ottla bench: {text}"), file=sys.stderr, flush=True)
