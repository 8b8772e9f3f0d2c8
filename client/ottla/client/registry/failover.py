"""Order and pauses of the attempts to send one request, over several addresses of a schema
registry. Pure.

Every address is tried once before the first pause. Pauses double from round to round, up to a
maximum. The next request is first sent to the address that responded last.
"""

from collections.abc import Iterator, Sequence

RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of temporary errors, after which the request is sent again, as after a lost
connection."""


class FailoverPlan:
    """Addresses of a schema registry, and the address that responded last."""

    def __init__(
        self, urls: Sequence[str], *, retry_count: int, pause_s: float, pause_max_s: float
    ) -> None:
        assert urls and retry_count >= 0
        self._urls = tuple(urls)
        self._retry_count = retry_count
        self._pause_s = pause_s
        self._pause_max_s = pause_max_s
        self._first = 0

    def attempts(self) -> Iterator[tuple[float, str]]:
        """Yield the pause, in seconds, before each attempt, and the address to use."""
        first = self._first
        pause_s = 0.0
        for round_number in range(self._retry_count + 1):
            for index in range(len(self._urls)):
                yield pause_s, self._urls[(first + index) % len(self._urls)]
                pause_s = 0.0
            pause_s = min(self._pause_s * 2**round_number, self._pause_max_s)

    def responded(self, url: str) -> None:
        """Record that this address has responded, so that the next request is first sent to it."""
        self._first = self._urls.index(url)
