"""Runs the threads of one workload: each gets its next operation, performs it, and records its
outcome.

A thread is a trio task with one client. An operation with an unknown outcome (INFO) ends its
process, and the thread continues under another process number. The same threads do the final reads
after the load.
"""

from collections import Counter
from collections.abc import Callable
from math import inf
from pathlib import Path
from random import Random
from traceback import extract_tb

import trio

from ottla.jepsen.history import EventKind, Json, Recorder
from ottla.jepsen.workloads.load import Completion, LoadClient, Note, Op
from ottla.jepsen.workloads.table import Workload
from ottla.model.errors import only_error

INVOKE_TIMEOUT_S = 30.0
"""Time limit of a client operation in seconds, well above the clients' own deadlines. Only a client
with a bug reaches it."""
OPEN_TIMEOUT_S = 30.0
OPEN_PAUSE_S = 0.2
"""Delay in seconds before a workload's thread tries again to open a client."""
CLOSE_TIMEOUT_S = 10.0
IDLE_S = 0.01
"""Delay in seconds before a workload's idle thread asks for an operation again."""
NOTES_FROM = 1_000_000
"""Lowest process number for events outside operations. Each thread uses this number plus its own
number. These numbers are above the process numbers of all clients."""


class RunLoad:
    """The threads of one workload that runs on one cluster. `now_ns` is the recorder's clock."""

    def __init__(
        self, workload: Workload, recorder: Recorder, now_ns: Callable[[], int], seed: int
    ) -> None:
        self.broken: Counter[str] = Counter()
        """Number of unexpected exceptions that clients raised, by text. Clients must never raise
        one."""
        self._workload = workload
        self._recorder = recorder
        self._now_ns = now_ns
        self._seed = seed
        self._is_stopping = False
        self._is_read_due = trio.Event()
        self._working: set[int] = set()
        self._reading: set[int] = set()
        self._all_stopped = trio.Event()

    @property
    def is_read(self) -> bool:
        """True if every thread has finished its final reads (the reads of all records after the
        load)."""
        return self._is_read_due.is_set() and not self._reading

    async def run(self, bootstrap: str, threads: int) -> None:
        """Run every thread of the workload, from the first operation of the load to the last final
        read."""
        self._working = set(range(threads))
        self._reading = set(range(threads))
        async with trio.open_nursery() as nursery:
            for thread in range(threads):
                nursery.start_soon(self._thread, bootstrap, thread)

    async def stop(self) -> None:
        """End the workload's load. Returns when no operation is in flight."""
        self._is_stopping = True
        await self._all_stopped.wait()

    def read(self) -> None:
        """End the load and begin the final reads, which read all records. `run` returns when all
        threads have finished them."""
        self._is_read_due.set()

    async def _thread(self, bootstrap: str, thread: int) -> None:
        rng = Random(f"{self._seed}/{self._workload.name}/{thread}")
        is_done = False
        while not is_done:
            # One scope for the whole life of a client, with a deadline for its opening and its
            # closing.
            with trio.CancelScope(deadline=trio.current_time() + OPEN_TIMEOUT_S) as scope:
                try:
                    opening = self._workload.open_client(bootstrap, thread, self._noter(thread))
                    async with opening as client:
                        scope.deadline = inf
                        await self._work(client, thread, rng)
                        is_done = True
                        scope.deadline = trio.current_time() + CLOSE_TIMEOUT_S
                except Exception as error:
                    # Any exception is a finding, because clients report errors by completions.
                    self.broken[f"{self._workload.name}: {_error_text(error)}"] += 1
            if not is_done:
                await trio.sleep(OPEN_PAUSE_S)

    async def _work(self, client: LoadClient, thread: int, rng: Random) -> None:
        """Perform a thread's operations with one client. Called again with a new client after a
        client failed."""
        if not self._is_read_due.is_set():
            while not self._is_stopping:
                op = self._workload.next_op(thread, self._now_ns(), rng)
                await self._do(client, thread, op)
            self._working.discard(thread)
            if not self._working:
                self._all_stopped.set()
            await self._is_read_due.wait()
        while True:
            op = self._workload.final_op(thread, self._now_ns(), rng)
            if op is None:
                self._reading.discard(thread)
                return
            await self._do(client, thread, op)

    async def _do(self, client: LoadClient, thread: int, op: Op | None) -> None:
        if op is None:
            await trio.sleep(IDLE_S)
            return
        invoke = self._recorder.invoke(self._recorder.process(thread), op.f, op.value, op.extra)
        done = Completion(EventKind.INFO, None, "the run ended")
        try:
            with trio.fail_after(INVOKE_TIMEOUT_S):
                done = await client.invoke(op)
        except trio.TooSlowError:
            done = Completion(EventKind.INFO, None, "no answer within the harness's own deadline")
        except Exception as error:
            done = Completion(EventKind.INFO, None, f"the client raised {_error_text(error)}")
            raise
        finally:
            self._recorder.complete(invoke, done.kind, done.value, done.error, done.extra)
        self._workload.on_completion(thread, op, done)

    def _noter(self, thread: int) -> Note:
        def note(f: str, value: Json) -> None:
            self._recorder.note(NOTES_FROM + thread, f, value)

        return note


def _error_text(error: BaseException) -> str:
    """Return the text of an exception with the code location that raised it."""
    error = only_error(error)
    frames = extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
