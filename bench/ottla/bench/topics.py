"""The topics of one run: new ones under a name of their own, deleted at its end.

What an earlier run left in a topic made later figures of `consume` two to three times too bad.  A
run that is not told a topic therefore makes its own, and deletes it also after Ctrl-C, SIGTERM and
errors.  A topic that the user names is created where it is missing, and kept.
"""

import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import trio

from ottla.bench.load import Load, make_topic
from ottla.client import open_admin
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.visible_text import visible

PREFIX = "ottla-bench"
DELETE_TIMEOUT_S = 15.0
"""Bound of the deletion: the cluster may be what a run has just killed."""


class RunTopics:
    """The topics that one run works on."""

    def __init__(self, bootstrap: str, given: str | None, *, is_kept: bool) -> None:
        self.name = given or fresh_name()
        """Name of the run's topic, or the first part of its topics' names."""

        self.is_own = given is None
        """Whether the topics are the run's own, and not named by the user."""

        self._bootstrap = bootstrap
        self._is_kept = is_kept or not self.is_own
        self._claimed: dict[str, None] = {}

    def claim(self, name: str) -> str:
        """Note a topic that the run is about to create; return its name."""
        self._claimed[name] = None
        return name

    def make(self, load: Load) -> None:
        """Create the load's topic unless it is there."""
        self.claim(load.topic)
        try:
            make_topic(load)
        except RefusedError:
            del self._claimed[load.topic]  # there is nothing to delete
            raise

    def close(self) -> None:
        """Delete the run's own topics, or say on standard error which ones are kept."""
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
    """Yield the topics of a run, and delete its own ones at the end, however it ends."""
    topics = RunTopics(bootstrap, given, is_kept=is_kept)
    with _terminated_as_interrupted():
        try:
            yield topics
        finally:
            topics.close()


def fresh_name() -> str:
    """Return a name that no other run has."""
    return f"{PREFIX}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


async def _delete(bootstrap: str, names: Sequence[str]) -> dict[str, str]:
    """Delete topics; return those that remain, with the reason."""
    with trio.move_on_after(DELETE_TIMEOUT_S):
        async with open_admin(bootstrap) as admin:
            outcomes = await admin.delete_topics(names)
            return {
                name: refusal.message
                for name, refusal in outcomes.items()
                if refusal is not None and refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
    return dict.fromkeys(names, f"no answer in {DELETE_TIMEOUT_S:g} s")


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM end the run as Ctrl-C does, so that `timeout 60 ottla bench …` cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        with suppress(TypeError):  # a handler that Python did not install
            signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _listed(names: Sequence[str]) -> str:
    return f"topic{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _note(text: str) -> None:
    print(visible(f"ottla bench: {text}"), file=sys.stderr, flush=True)
