"""How far the epoch is raised because others say so.

Pure.  Invariant: EpochsLast (no message brings the epoch near the end of its 32 bits, after which
nobody could be elected).  A message that cannot be true is refused before anything of it is
remembered.

A request may come from anybody, so all requests together raise the epoch by `EPOCH_JUMP_MAX` at
once and by `EPOCHS_PER_SECOND` in the long run; one that asks for more is refused.  An answer comes
from a voter's own address: it may raise the epoch by a jump each time.  So a replica that was away
for long, or that refused a request, catches up by what it asks.
"""

from ottla.model.ids import Epoch
from ottla.model.limits import INT32_MAX

EPOCH_JUMP_MAX = 1 << 24
"""How far ahead of ours an epoch may be.  Ten elections a second need 19 days for so many; smaller
leaves a replica out that was away, larger lets a few messages use the epochs up."""

EPOCHS_PER_SECOND = 10
"""How fast requests may raise the epoch in the long run: elections are no more frequent.  At this
rate somebody who forges them needs years for all epochs."""

EPOCH_MAX = Epoch(INT32_MAX - 1)
"""No epoch is above it; whoever stands for election is one epoch further."""

MS_PER_EPOCH = 1_000 // EPOCHS_PER_SECOND


class EpochCredit:
    """How far requests may raise the epoch at present."""

    __slots__ = ("_left", "_refilled_ms")

    def __init__(self, now_ms: int) -> None:
        self._left = EPOCH_JUMP_MAX
        self._refilled_ms = now_ms

    def is_enough(self, rise: int, now_ms: int) -> bool:
        """Return whether a request may raise the epoch by so much."""
        earned = (now_ms - self._refilled_ms) // MS_PER_EPOCH
        if earned > 0:
            self._left = min(EPOCH_JUMP_MAX, self._left + earned)
            self._refilled_ms += earned * MS_PER_EPOCH
        return rise <= self._left

    def spend(self, rise: int) -> None:
        """Note that a request has raised the epoch."""
        self._left = max(0, self._left - rise)
