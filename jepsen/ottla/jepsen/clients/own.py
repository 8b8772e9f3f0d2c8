"""Base of the load clients that use Ottla's own client library."""

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
"""Time in seconds between the deadline of an operation and its cancellation by the harness. A
cancelled operation reports less than an operation that ends by itself."""


class OwnClient(ABC):
    """Load client that uses Ottla's own client. Subclasses define its operations."""

    def __init__(self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note) -> None:
        self.nursery = nursery
        self.bootstrap = bootstrap
        self.thread = thread
        self.note = note
        self.parts: list[Renewable[Any]] = []
        """Resources of the client that end when it crashes, such as producers and consumers."""
        self.attempted: Json = None
        """Possible effects of the current operation so far. If the operation is cancelled, this is
        the value of its completion (outcome event)."""

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""

    async def invoke(self, op: Op) -> Completion:
        """Perform an operation within its deadline, and return its completion (outcome event)."""
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
        """Reset the state that a crash of the client loses."""
        return


@asynccontextmanager
async def open_own(
    kind: Callable[[trio.Nursery, str, int, Note], C], bootstrap: str, thread: int, note: Note
) -> AsyncIterator[C]:
    """Open a load client, which `kind` creates, and yield it. At the end of the block the client
    leaves its groups, and its open operations are dropped."""
    async with trio.open_nursery() as nursery:
        client = kind(nursery, bootstrap, thread, note)
        yield client
        with trio.move_on_after(CLOSE_S):
            for part in client.parts:
                await part.aclose()
        nursery.cancel_scope.cancel()
