"""Limits on increases of the epoch by messages from other nodes.

Pure. Invariant: EpochsLast (no message raises the epoch near the end of its 32 bits, after which no
replica could be elected). An impossible message is refused before any of its content is stored.

Any process may send a request. Therefore, all requests together may raise the epoch by at most
`EPOCH_JUMP_MAX` at once, and by `EPOCHS_PER_SECOND` in the long run; further increases are refused.
A response comes from a voter's own address, so each response may raise the epoch by
`EPOCH_JUMP_MAX`. A replica that was offline for long, or that refused a request, therefore catches
up with its own requests.
"""

from ottla.model.ids import Epoch
from ottla.model.limits import INT32_MAX

EPOCH_JUMP_MAX = 1 << 24
"""Maximum amount by which one message may raise the epoch. Ten elections a second take 19 days to
reach it. A smaller value excludes a replica that was offline for long. With a larger value, a few
messages could exhaust the epochs."""

EPOCHS_PER_SECOND = 10
"""Long-term rate, per second, at which requests of other nodes may raise the epoch. Elections are
not more frequent. With a smaller rate, replicas are excluded during frequent elections. At this
rate a forger needs years to exhaust the epochs."""

EPOCH_MAX = Epoch(INT32_MAX - 1)
"""The largest epoch that a replica accepts in a message. A candidate may be one epoch higher."""

MS_PER_EPOCH = 1_000 // EPOCHS_PER_SECOND


class EpochCredit:
    """The amount by which requests of other nodes may currently raise the epoch. Each increase of
    the epoch reduces the credit, and the credit is refilled at `EPOCHS_PER_SECOND`."""

    __slots__ = ("_left", "_refilled_ms")

    def __init__(self, now_ms: int) -> None:
        self._left = EPOCH_JUMP_MAX
        self._refilled_ms = now_ms

    def is_enough(self, rise: int, now_ms: int) -> bool:
        """Return whether the credit permits a request to raise the epoch by `rise`."""
        earned = (now_ms - self._refilled_ms) // MS_PER_EPOCH
        if earned > 0:
            self._left = min(EPOCH_JUMP_MAX, self._left + earned)
            self._refilled_ms += earned * MS_PER_EPOCH
        return rise <= self._left

    def spend(self, rise: int) -> None:
        """Charge a request's increase of the epoch by `rise` to the credit."""
        self._left = max(0, self._left - rise)
