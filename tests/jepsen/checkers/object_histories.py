"""Valid histories of clients of one object, with failing, hanging and late calls.

A small simulation in virtual time: each operation begins, takes effect at one moment (or not, or
after its client gave up) and ends. The object is a parameter.
"""

import heapq
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Protocol

from ottla.jepsen.history import NO_EXTRA, EventKind, History, Json, Recorder

NS_PER_MS = 1_000_000

ENDINGS = ("fail", "info", "done-info", "late")


class Object(Protocol):
    """The object that clients use."""

    def choose(self, rng: Random, thread: int) -> tuple[str, Json] | None:
        """Return the operation that a thread begins now; None when it has nothing to do."""
        ...

    def apply(self, rng: Random, thread: int, f: str, asked: Json) -> tuple[Json, EventKind]:
        """Apply an operation; return its result and its outcome (OK or FAIL)."""
        ...

    def extra(self, f: str, asked: Json, result: Json) -> Mapping[str, Json]:
        """Return the extra fields of the completion."""
        ...


class _Clients:
    def __init__(self, rng: Random, used: Object, threads: int, count: int, trouble: float) -> None:
        self.now_ns = 0
        self._rng = rng
        self._used = used
        self._left = count
        self._trouble = trouble
        self._recorder = Recorder(lambda: self.now_ns, concurrency=threads)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0
        for thread in range(threads):
            self._plan(rng.randrange(NS_PER_MS), partial(self._next, thread))

    def run(self) -> History:
        while self._agenda:
            self.now_ns, _, act = heapq.heappop(self._agenda)
            act()
        return self._recorder.history()

    def _next(self, thread: int) -> None:
        rng = self._rng
        chosen = self._used.choose(rng, thread)
        self._left -= 1
        if self._left < 0 or chosen is None:
            return
        f, asked = chosen
        invoke = self._recorder.invoke(self._recorder.process(thread), f, asked)
        took_ns = rng.randrange(2, 20) * NS_PER_MS
        ending = rng.choice(ENDINGS) if rng.random() >= 1 - self._trouble else ""
        answer: list[tuple[Json, EventKind]] = []

        def act() -> None:
            if ending in ("", "done-info", "late"):
                answer.append(self._used.apply(rng, thread, f, asked))

        def end() -> None:
            if ending == "":
                result, kind = answer[0]
                extra = self._used.extra(f, asked, result) if kind is EventKind.OK else NO_EXTRA
                self._recorder.complete(invoke, kind, result, extra=extra)
            else:
                kind = EventKind.FAIL if ending == "fail" else EventKind.INFO
                self._recorder.complete(invoke, kind, error="timed out")
            self._plan(rng.randrange(5) * NS_PER_MS, partial(self._next, thread))

        self._plan(took_ns * 3 if ending == "late" else rng.randrange(1, took_ns), act)
        self._plan(took_ns, end)

    def _plan(self, wait_ns: int, act: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._agenda, (self.now_ns + wait_ns, self._planned, act))


def object_history(
    rng: Random, used: Object, *, threads: int = 4, count: int = 60, trouble: float = 0.1
) -> History:
    """Return a valid history of `count` operations on one object."""
    return _Clients(rng, used, threads, count, trouble).run()
