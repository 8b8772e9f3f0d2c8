"""A load client of our own client library: what all of them share."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import trio

from ottla.jepsen.clients.completions import DEADLINE_S, PAUSE_S, TROUBLE, troubled, unknown
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import OWN, Completion, Note, Op

C = TypeVar("C", bound="OwnClient")

CLOSE_S = 2.0
GRACE_S = 1.0
"""An operation that keeps the deadline itself can say more of what it knows than we can here."""


class OwnClient(ABC):
    """Does operations with our own client; subclasses say how."""

    def __init__(self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note) -> None:
        self.nursery = nursery
        self.bootstrap = bootstrap
        self.thread = thread
        self.note = note
        self.parts: list[Renewable[Any]] = []
        """What ends when the client crashes."""
        self.attempted: Json = None
        """What the operation under way may have done, for who hears no more of it."""

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Return how each operation is done, by `f`."""

    async def invoke(self, op: Op) -> Completion:
        """Do it, within its deadline."""
        done = await self._crash(op) if op.f == "crash" else await self._attempt(op)
        if done.kind is not EventKind.OK and op.f != "crash":
            await trio.sleep(PAUSE_S)
        return replace(done, extra={**done.extra, "client": OWN})

    async def _attempt(self, op: Op) -> Completion:
        done: Completion | None = None
        self.attempted = None
        with trio.move_on_after(DEADLINE_S + GRACE_S):
            try:
                done = await self.operations[op.f](op)
            except TROUBLE as error:
                done = troubled(op, error)
        silence = f"no answer in {DEADLINE_S:g} s"
        return done or replace(unknown(op, silence), value=self.attempted)

    async def _crash(self, op: Op) -> Completion:
        for part in self.parts:
            await part.crash()
        self.on_crash()
        return Completion(EventKind.INFO)

    def on_crash(self) -> None:
        """Forget what the client knew."""
        return


@asynccontextmanager
async def open_own(
    kind: Callable[[trio.Nursery, str, int, Note], C], bootstrap: str, thread: int, note: Note
) -> AsyncIterator[C]:
    """Open a load client; at the end what it still does is dropped, its groups are left."""
    async with trio.open_nursery() as nursery:
        client = kind(nursery, bootstrap, thread, note)
        yield client
        with trio.move_on_after(CLOSE_S):
            for part in client.parts:
                await part.aclose()
        nursery.cancel_scope.cancel()
