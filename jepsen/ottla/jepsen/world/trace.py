"""The events of a simulated run as one hash: equal hashes mean equal runs, on any machine.

The parts of an event are numbers, texts and bytes, never objects. The hash therefore cannot depend
on an address, on `hash()` or on the order of a set.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b

Part = int | str | bytes
Listener = Callable[[tuple[Part, ...]], None]

_CHUNK_EVENTS = 512
"""Number of events that are hashed at once, so that adding an event is nearly as cheap as appending
to a list."""

_listener: Listener | None = None


class Trace:
    """The events of one simulated run, as one hash."""

    __slots__ = ("_chunk", "_hashed_count", "_hasher", "_listener")

    def __init__(self) -> None:
        self._hasher = blake2b(digest_size=16)
        self._chunk: list[tuple[Part, ...]] = []
        self._hashed_count = 0
        self._listener = _listener

    def add(self, *parts: Part) -> None:
        """Add one event of the run to the trace. `parts` are numbers, texts and bytes that describe
        the event."""
        self._chunk.append(parts)
        if self._listener is not None:
            self._listener(parts)
        if len(self._chunk) >= _CHUNK_EVENTS:
            self._take_in()

    @property
    def event_count(self) -> int:
        """Number of events added to the trace so far."""
        return self._hashed_count + len(self._chunk)

    @property
    def hash(self) -> str:
        """Hash of all events added so far, in hexadecimal digits."""
        self._take_in()
        return self._hasher.hexdigest()

    def _take_in(self) -> None:
        # One text for the whole chunk, the same for every division into chunks.
        self._hasher.update(repr(self._chunk)[1:-1].encode() + b", " if self._chunk else b"")
        self._hashed_count += len(self._chunk)
        self._chunk.clear()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Return a context in which `listener` receives every event of the run as it happens. Reports
    use it to print the events of a replayed run."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
