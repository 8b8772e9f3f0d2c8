"""Progress line on the terminal, for commands that read a bucket for a long time."""

import time
from types import TracebackType

from ottla.cli.terminal import draw, is_watched, wipe
from ottla.model.amounts import amount

DRAW_INTERVAL_S = 0.1
BAR_WIDTH = 30


class BucketProgress:
    """A line on the terminal that shows the progress of a long read. Nothing is drawn if standard
    error is not a terminal. The line is erased at the end of the `with` block."""

    def __init__(self, action: str, noun: str, total: int | None = None) -> None:
        """Create a line that shows a count and, if `total` is not None, a bar. `noun` is the plural
        of the counted objects, or `bytes`."""
        self._action = action
        self._noun = noun
        self._total = total
        self._drawn_s = 0.0
        self._count = 0

    def __enter__(self) -> "BucketProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn_s:
            wipe()

    def advance(self, count: int) -> None:
        """Add `count` to the number of objects or bytes that the line shows."""
        self._count += count
        now_s = time.monotonic()
        if is_watched() and now_s - self._drawn_s >= DRAW_INTERVAL_S:
            self._drawn_s = now_s
            draw(self._text())

    def _text(self) -> str:
        done = self._shown(self._count)
        if not self._total:
            return f"{self._action}: {done}"
        filled = min(BAR_WIDTH, round(BAR_WIDTH * self._count / self._total))
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        return f"{self._action} [{bar}] {done} of {self._shown(self._total)}"

    def _shown(self, count: int) -> str:
        return amount(count) if self._noun == "bytes" else f"{count:,} {self._noun}"
