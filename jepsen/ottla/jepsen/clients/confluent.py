"""A load client of confluent-kafka (librdkafka): what all of them share.

The library calls back from the thread that polls it, so whatever a client does is done in one
thread at a time, away from the loop.  It is an extra: whoever opens a client without it is told.
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
"""Of one request: as our own clients have it."""
CLOSE_S = 5.0
DROP_S = 2.0
GRACE_S = 1.0
"""An operation that keeps the deadline itself can say more of what it knows than we can here."""
CONSUMERS = ("member", "reader")
"""The handles that are consumers."""

LOGGER = getLogger("librdkafka")
"""What it logs is in the completions; it would else write to the harness' own terminal."""
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
        **CONFLUENT_LOGIN.get(),
        "bootstrap.servers": bootstrap,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def producer_settings(bootstrap: str, *, idempotent: bool) -> dict[str, Json]:
    """Return how load is sent."""
    return settings(
        bootstrap,
        acks="all",
        enable__idempotence=idempotent,
        linger__ms=0,
        message__timeout__ms=int(DEADLINE_S * 1_000),
        request__timeout__ms=4_000,
    )


def let_go(handles: dict[str, Any]) -> None:
    """Let librdkafka end its handles; may take long.

    A member of the consumer protocol that has not been told of its last assignment never ends, and
    keeps a core busy for as long as its process lives (2.16): so it is told first.
    """
    member = handles.get("member")
    if member is not None:
        with suppress(RuntimeError, library().KafkaException):
            member.poll(0)
    del member
    handles.clear()


class ConfluentClient(ABC):
    """Does operations with confluent-kafka, in one thread at a time; subclasses say how."""

    def __init__(self, bootstrap: str, thread: int, note: Note, plan: LoadPlan) -> None:
        self.kafka = library()
        self.bootstrap = bootstrap
        self.thread = thread
        self.plan = plan
        self.handles: dict[str, Any] = {}
        """librdkafka's producers, consumers and operators, by what they are here."""
        self.attempted: Json = None
        """What the operation under way may have done, for who hears no more of it."""
        self._note = note
        self._turn = trio.CapacityLimiter(1)

    @property
    @abstractmethod
    def operations(self) -> Mapping[str, Callable[[Op], Completion]]:
        """Return how each operation is done, by `f`; called in a thread."""

    def on_drop(self) -> None:
        """Forget what was known of the handles: there are none any more."""
        return

    def note(self, f: str, value: Json) -> None:
        """Note at once what happened; called in a thread."""
        trio.from_thread.run_sync(self._note, f, value)

    def producer(self) -> Any:
        """Return the producer, made when it is first needed."""
        if "producer" not in self.handles:
            config = producer_settings(self.bootstrap, idempotent=self.plan.idempotent)
            self.handles["producer"] = self.kafka.Producer(config)
        return self.handles["producer"]

    def operator(self) -> Any:
        """Return the operator's client, made when it is first needed."""
        if "operator" not in self.handles:
            config = settings(self.bootstrap)
            self.handles["operator"] = admin_module().AdminClient(config)
        return self.handles["operator"]

    async def invoke(self, op: Op) -> Completion:
        """Do it, within its deadline."""
        if op.f == "crash":
            await self._drop()
            return Completion(EventKind.INFO, None, None, {"client": CONFLUENT})
        done: Completion | None = None
        self.attempted = None
        with trio.move_on_after(DEADLINE_S + GRACE_S):
            done = await self._in_thread(partial(self._attempt, op))
        if done is None:
            # Whatever it hangs in, its thread keeps: nobody waits for it any more.
            await self._drop()
            text = f"librdkafka did not return in {DEADLINE_S + GRACE_S:g} s"
            done = replace(unknown(op, text), value=self.attempted)
        if op.f == "send" and done.kind is EventKind.INFO:
            await self._drop_producer()
        if done.kind is not EventKind.OK:
            await trio.sleep(PAUSE_S)
        return replace(done, extra={**done.extra, "client": CONFLUENT})

    async def aclose(self) -> None:
        """Close every consumer, so that it leaves its group, and drop all there is."""
        consumers = [one for name, one in self.handles.items() if name in CONSUMERS]
        with trio.move_on_after(CLOSE_S):
            for consumer in consumers:
                await self._in_thread(consumer.close)
        consumers.clear()
        await self._drop()

    async def _drop(self) -> None:
        """Drop every handle without closing it: librdkafka then says no farewell.

        It may take long over that, or never end; it is left to its thread then.
        """
        handles, self.handles = self.handles, {}
        self._turn = trio.CapacityLimiter(1)
        self.on_drop()
        await self._let_go(handles)

    async def _drop_producer(self) -> None:
        """Drop the producer, with whatever it still wanted to send.

        Where one message times out librdkafka gives its epoch up, and what was in flight beside
        that message goes out once more under the next one, by numbers that no broker can know: a
        duplicate of the client's own making (2.16; `enable.gapless.guarantee` is off by default).
        """
        if producer := self.handles.pop("producer", None):
            handles = {"producer": producer}
            del producer
            await self._let_go(handles)

    async def _let_go(self, handles: dict[str, Any]) -> None:
        with trio.move_on_after(DROP_S):
            await trio.to_thread.run_sync(partial(let_go, handles), abandon_on_cancel=True)

    async def _in_thread(self, act: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(act, limiter=self._turn, abandon_on_cancel=True)

    def _attempt(self, op: Op) -> Completion:
        try:
            return self.operations[op.f](op)
        except self.kafka.KafkaException as error:
            return self.troubled(op, error.args[0])

    def troubled(self, op: Op, error: Any, certain: frozenset[str] = frozenset()) -> Completion:
        """Return what an error of librdkafka's means; `certain` names those that did nothing."""
        is_certain = op.f in READS or error.name() in certain
        kind = EventKind.FAIL if is_certain else EventKind.INFO
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
        with trio.CancelScope(shield=True):
            await client.aclose()
