"""A load client of confluent-kafka (librdkafka): what all of them share.

The library calls back from the thread that polls it, so whatever a client does is done in one
thread at a time, away from the loop.  It is an extra: whoever opens a client without it is told.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import trio

from ottla.jepsen.clients.completions import PAUSE_S, READS
from ottla.jepsen.history import Json, Kind
from ottla.jepsen.workloads.load import CONFLUENT, Completion, Note, Op
from ottla.model.errors import ConfigError

C = TypeVar("C", bound="ConfluentClient")

MISSING = (
    "confluent",
    "needs the package confluent-kafka (pip install confluent-kafka), which is not installed",
)
TIMEOUT_MS = 4_000
"""Of one request: as our own clients have it."""
CLOSE_S = 5.0

COMMON: Mapping[str, Json] = {
    "client.id": "jepsen-confluent",
    "socket.timeout.ms": TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": TIMEOUT_MS,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "allow.auto.create.topics": False,
    "log_level": 0,
}


def library(module: str = "confluent_kafka") -> Any:
    """Return the library, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(*MISSING) from error


def admin_module() -> Any:
    """Return its part for operators."""
    return library("confluent_kafka.admin")


def settings(bootstrap: str, **more: Json) -> dict[str, Json]:
    """Return librdkafka's settings; names with `__` for each dot."""
    return {
        **COMMON,
        "bootstrap.servers": bootstrap,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


class ConfluentClient:
    """Does operations with confluent-kafka, in one thread at a time; subclasses say how."""

    def __init__(self, bootstrap: str, thread: int, note: Note) -> None:
        self.kafka = library()
        self.bootstrap = bootstrap
        self.thread = thread
        self._note = note
        self._turn = trio.CapacityLimiter(1)

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Return how each operation is done, by `f`; called in a thread."""
        raise NotImplementedError

    def note(self, f: str, value: Json) -> None:
        """Note at once what happened; called in a thread."""
        trio.from_thread.run_sync(self._note, f, value)

    def drop(self) -> None:
        """Forget every handle without closing it: librdkafka then says no farewell."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every handle."""
        self.drop()

    async def invoke(self, op: Op) -> Completion:
        """Do it, within its deadline."""
        if op.f == "crash":
            await self.in_thread(self.drop)
            return Completion(Kind.INFO, None, None, {"client": CONFLUENT})
        done: Completion = await self.in_thread(partial(self._attempt, op))
        if done.kind is not Kind.OK:
            await trio.sleep(PAUSE_S)
        return replace(done, extra={**done.extra, "client": CONFLUENT})

    async def in_thread(self, act: Callable[[], Any]) -> Any:
        """Do something in a thread, when the thread before has ended."""
        return await trio.to_thread.run_sync(act, limiter=self._turn, abandon_on_cancel=True)

    def _attempt(self, op: Op) -> Completion:
        try:
            return self.operations[op.f](op)
        except self.kafka.KafkaException as error:
            return self.troubled(op, error.args[0])

    def troubled(self, op: Op, error: Any, certain: frozenset[str] = frozenset()) -> Completion:
        """Return what an error of librdkafka's means; `certain` names those that did nothing."""
        is_certain = op.f in READS or error.name() in certain
        kind = Kind.FAIL if is_certain else Kind.INFO
        return Completion(kind, None, f"{error.name()}: {error.str()}")


@asynccontextmanager
async def open_confluent(
    kind: Callable[[str, int, Note], C], bootstrap: str, thread: int, note: Note
) -> AsyncIterator[C]:
    """Open a load client; at the end its handles are closed, as long as that does not take long."""
    client = kind(bootstrap, thread, note)
    try:
        yield client
    finally:
        with trio.move_on_after(CLOSE_S) as scope:
            scope.shield = True
            await client.in_thread(client.close)
