"""Base of the load clients that use confluent-kafka (librdkafka).

librdkafka runs its callbacks in the thread that polls it. So all calls of one client run in one
thread at a time, outside the event loop. The library is an optional dependency. Opening a client
without it raises ConfigError.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from logging import NullHandler, getLogger
from typing import Any, TypeVar

import trio

from ottla.jepsen.clients.completions import DEADLINE_S, PAUSE_S, READS, unknown
from ottla.jepsen.clients.login import CONFLUENT_LOGIN
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import CONFLUENT, Completion, LoadPlan, Note, Op
from ottla.model.errors import ConfigError

C = TypeVar("C", bound="ConfluentClient")

MISSING = (
    "confluent",
    "needs the package confluent-kafka (pip install confluent-kafka), which is not installed",
)
TIMEOUT_MS = 4_000
"""Timeout in ms of one request of confluent-kafka, the same as for Ottla's own clients."""
CLOSE_S = 5.0
DROP_S = 2.0
GRACE_S = 1.0
"""Time in seconds between the deadline of an operation and its cancellation by the harness. An
operation that ends by itself reports more than a cancelled one."""
CONSUMERS = ("member", "reader")
"""Names of the roles in `ConfluentClient.handles` whose handles are consumers."""

LOGGER = getLogger("librdkafka")
"""Logger that receives librdkafka's log lines, which would otherwise be written to the harness's
terminal. The completions (outcome events) of operations contain the errors."""
LOGGER.addHandler(NullHandler())
LOGGER.propagate = False

COMMON: Mapping[str, Json] = {
    "client.id": "jepsen-confluent",
    "socket.timeout.ms": TIMEOUT_MS,
    "socket.connection.setup.timeout.ms": TIMEOUT_MS,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "allow.auto.create.topics": False,
    "logger": LOGGER,
}


def library(module: str = "confluent_kafka") -> Any:
    """Return a module of confluent-kafka. Raises ConfigError with the install command if it is
    missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(*MISSING) from error


def admin_module() -> Any:
    """Return confluent-kafka's admin module."""
    return library("confluent_kafka.admin")


def settings(bootstrap: str, **more: Json) -> dict[str, Json]:
    """Return a configuration for librdkafka. `more` has further settings; in the names of these
    keyword arguments, `__` stands for a dot."""
    return {
        **COMMON,
        **CONFLUENT_LOGIN.get(),
        "bootstrap.servers": bootstrap,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def producer_settings(bootstrap: str, *, idempotent: bool) -> dict[str, Json]:
    """Return librdkafka's settings for the producer that sends the load."""
    return settings(
        bootstrap,
        acks="all",
        enable__idempotence=idempotent,
        linger__ms=0,
        message__timeout__ms=int(DEADLINE_S * 1_000),
        request__timeout__ms=4_000,
    )


def close_handles(handles: dict[str, Any]) -> None:
    """Release librdkafka's handles, which may take long.

    In librdkafka 2.16, the release of a consumer never ends if it uses the consumer protocol and
    has not received its last assignment. It then occupies a CPU core until the process ends. Each
    consumer is therefore polled once before its release.
    """
    member = handles.get("member")
    if member is not None:
        with suppress(RuntimeError, library().KafkaException):
            member.poll(0)
    del member
    handles.clear()


class ConfluentClient(ABC):
    """Load client that uses confluent-kafka, in one thread at a time. Subclasses define its
    operations."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        self.kafka = library()
        self.bootstrap = bootstrap
        self.thread = thread
        self.plan = plan
        self.handles: dict[str, Any] = {}
        """librdkafka's producers, consumers and admin clients, by their role."""
        self.attempted: Json = None
        """Possible effects of the current operation so far. If the operation is cancelled, this is
        the value of its completion (outcome event)."""
        self._note = note
        self._turn = trio.CapacityLimiter(1)

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Functions that perform the workload's operations, by operation name. They run in a worker
        thread."""

    def on_drop(self) -> None:
        """Reset the state that belongs to librdkafka's handles, after the client has dropped
        them."""
        return

    def note(self, f: str, value: Json) -> None:
        """Record an event outside an operation in the history at once. This method may be called
        from any thread."""
        trio.from_thread.run_sync(self._note, f, value)

    def producer(self) -> Any:
        """Return the client's producer, which is created at its first use."""
        if "producer" not in self.handles:
            config = producer_settings(self.bootstrap, idempotent=self.plan.idempotent)
            self.handles["producer"] = self.kafka.Producer(config)
        return self.handles["producer"]

    def operator(self) -> Any:
        """Return the client's admin client, which is created at its first use."""
        if "operator" not in self.handles:
            config = settings(self.bootstrap)
            self.handles["operator"] = admin_module().AdminClient(config)
        return self.handles["operator"]

    async def invoke(self, op: Op) -> Completion:
        """Perform an operation within its deadline, and return its completion (outcome event)."""
        if op.f == "crash":
            await self._drop()
            return Completion(EventKind.INFO, None, None, {"client": CONFLUENT})
        done: Completion | None = None
        self.attempted = None
        with trio.move_on_after(DEADLINE_S + GRACE_S):
            done = await self._in_thread(partial(self._attempt, op))
        if done is None:
            # A call that hangs keeps its thread, which nothing waits for.
            await self._drop()
            text = f"librdkafka did not return in {DEADLINE_S + GRACE_S:g} s"
            done = replace(unknown(op, text), value=self.attempted)
        if op.f == "send" and done.kind is EventKind.INFO:
            await self._drop_producer()
        if done.kind is not EventKind.OK:
            await trio.sleep(PAUSE_S)
        return replace(done, extra={**done.extra, "client": CONFLUENT})

    async def aclose(self) -> None:
        """Close every consumer, so that it leaves its group, and drop all handles."""
        consumers = [one for name, one in self.handles.items() if name in CONSUMERS]
        with trio.move_on_after(CLOSE_S):
            for consumer in consumers:
                await self._in_thread(consumer.close)
        consumers.clear()
        await self._drop()

    async def _drop(self) -> None:
        """Drop every handle of librdkafka without closing it, so that no consumer leaves its group.

        Dropping the handles may take long or never end. The thread that does so is then abandoned.
        """
        handles, self.handles = self.handles, {}
        self._turn = trio.CapacityLimiter(1)
        self.on_drop()
        await self._close_handles(handles)

    async def _drop_producer(self) -> None:
        """Drop the producer, with the records that it has not sent yet.

        If one message times out, librdkafka increments the producer epoch and sends other messages
        in flight again with new sequence numbers. No broker can recognise these as duplicates, so
        the client itself would cause a duplicate (2.16; `enable.gapless.guarantee` is off by
        default).
        """
        if producer := self.handles.pop("producer", None):
            handles = {"producer": producer}
            del producer
            await self._close_handles(handles)

    async def _close_handles(self, handles: dict[str, Any]) -> None:
        with trio.move_on_after(DROP_S):
            await trio.to_thread.run_sync(partial(close_handles, handles), abandon_on_cancel=True)

    async def _in_thread(self, act: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(act, limiter=self._turn, abandon_on_cancel=True)

    def _attempt(self, op: Op) -> Completion:
        try:
            return self.operations[op.f](op)
        except self.kafka.KafkaException as error:
            return self.troubled(op, error.args[0])

    def troubled(self, op: Op, error: Any, certain: frozenset[str] = frozenset()) -> Completion:
        """Return the completion (outcome event) of an operation that failed with an error of
        librdkafka. The error names in `certain` prove that the operation had no effect."""
        is_certain = op.f in READS or error.name() in certain
        kind = EventKind.FAIL if is_certain else EventKind.INFO
        return Completion(kind, None, f"{error.name()}: {error.str()}")


@asynccontextmanager
async def open_confluent(
    kind: Callable[[str, int, Note], C], bootstrap: str, thread: int, note: Note
) -> AsyncIterator[C]:
    """Open a load client, which `kind` creates, and yield it. Its handles are closed at the end of
    the block, within a time limit."""
    client = kind(bootstrap, thread, note)
    try:
        yield client
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()
