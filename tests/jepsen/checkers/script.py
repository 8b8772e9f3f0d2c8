"""A history written step by step, for tests of exact sequences of events."""

from collections.abc import Mapping

from ottla.jepsen.history import NO_EXTRA, Event, EventKind, History, Json, Recorder

NS_PER_S = 1_000_000_000


class Script:
    """Records scripted events; every event is a second after the one before."""

    def __init__(self, threads: int = 8) -> None:
        self.now_ns = 0
        self._recorder = Recorder(self._tick, concurrency=threads)
        self._open: dict[int, tuple[Event, Mapping[str, Json]]] = {}

    def does(
        self,
        thread: int,
        f: str,
        asked: Json,
        result: Json = None,
        kind: EventKind = EventKind.OK,
        **extra: Json,
    ) -> None:
        """Record an operation without any concurrent one."""
        self.begins(thread, f, asked, **extra)
        self.ends(thread, result, kind)

    def begins(self, thread: int, f: str, asked: Json, **extra: Json) -> None:
        """Note that a thread begins an operation."""
        process = self._recorder.process(thread)
        self._open[thread] = (self._recorder.invoke(process, f, asked), extra or NO_EXTRA)

    def ends(self, thread: int, result: Json = None, kind: EventKind = EventKind.OK) -> None:
        """Note how the thread's operation ended."""
        begun, extra = self._open.pop(thread)
        self._recorder.complete(begun, kind, result, extra=extra)

    def notes(self, thread: int, f: str, value: Json) -> None:
        """Record an event of a thread's client outside its operations."""
        self._recorder.note(1_000_000 + thread, f, value)

    def fault(self, f: str, phase: str, **result: Json) -> None:
        """Note that a fault starts or ends."""
        self._recorder.nemesis(f, {"phase": phase, **result})

    def sends(self, thread: int, value: int, offset: int | None, **extra: Json) -> None:
        """Note that a value was appended to q-0 at an offset, and acknowledged."""
        result = [["send", "q-0", [offset, value]]]
        self.does(thread, "send", [["send", "q-0", value]], result, **extra)

    def polls(self, thread: int, records: list[list[int]], **extra: Json) -> None:
        """Note that a poll returned [offset, value] pairs of q-0."""
        self.does(thread, "poll", [["poll"]], [["poll", {"q-0": records}]], **extra)

    def history(self) -> History:
        """Return all that was noted."""
        return self._recorder.history()

    def _tick(self) -> int:
        self.now_ns += NS_PER_S
        return self.now_ns
