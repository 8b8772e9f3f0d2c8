"""Stores the current metadata image, and wakes the requests that wait for a newer one.

Pure. `MetadataCache` is the first publisher, so that every handler reads the newest image.
`ImageWatch` is the last publisher: requests that wait for a topic are woken when the topic's
replicas exist too.
"""

from collections.abc import Callable

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.node.network.dispatch import RequestContext
from ottla.node.network.purgatory import Purgatory, WaitingEntry
from ottla.node.network.response_queue import ResponseSlot

IMAGE_CHANGED = "the metadata image has changed"
"""Key in the purgatory (the table of waiting requests) of all requests that wait for a newer
metadata image."""


class MetadataCache:
    """Metadata publisher that stores the current metadata image for all request handlers."""

    __slots__ = ("followed_offset", "image", "is_opening")

    def __init__(self, is_opening: Callable[[str], bool] = lambda topic: False) -> None:
        self.image: MetadataImage = EMPTY
        self.followed_offset = EMPTY.provenance.offset
        """Offset of the last metadata record that all publishers of this broker have applied."""
        self.is_opening = is_opening
        """Function that returns True while this broker opens logs of a topic for the first time."""

    @property
    def name(self) -> str:
        """Name of this metadata publisher in fault reports."""
        return "metadata cache"

    def current_image(self) -> MetadataImage:
        """Return the current metadata image. This is a method because compiled code calls a bound
        method faster than a function of an interpreted module."""
        return self.image

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Replace the current metadata image by a newer one."""
        self.image = image


class ImageWatch:
    """Metadata publisher that wakes the requests that wait for a newer metadata image. It runs
    after all publishers that apply the metadata image."""

    def __init__(self, purgatory: Purgatory, metadata: MetadataCache) -> None:
        self._purgatory = purgatory
        self._metadata = metadata

    @property
    def name(self) -> str:
        """Name of this metadata publisher in fault reports."""
        return "image watch"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Wake the requests that wait for a newer metadata image."""
        self._metadata.followed_offset = image.provenance.offset
        self._purgatory.wake(IMAGE_CHANGED)


class ImageWait(WaitingEntry):
    """Client request that is answered when the metadata image satisfies a condition, or at its
    deadline."""

    __slots__ = ("_answer", "_is_there", "_slot")
    kind = "Metadata"

    def __init__(
        self, slot: ResponseSlot, is_there: Callable[[], bool], answer: Callable[[], None]
    ) -> None:
        super().__init__()
        self._slot = slot
        self._is_there = is_there
        self._answer = answer

    def try_complete(self) -> bool:
        """Answer the waiting request if the metadata image satisfies its condition. Returns True if
        the request was answered."""
        if not self._is_there():
            return False
        self._answer()
        return True

    def on_expire(self) -> None:
        """Answer the waiting request at its deadline. The metadata image does not contain the
        awaited change yet, but the change is committed."""
        self._answer()

    def on_fault(self, fault: Exception) -> None:
        """Close the client's connection after an unexpected error in its waiting request."""
        self._slot.fail(fault)


def answer_when(
    purgatory: Purgatory,
    context: RequestContext,
    is_there: Callable[[], bool],
    answer: Callable[[], None],
    *,
    deadline_ms: int,
) -> None:
    """Call `answer` when `is_there` returns True, or at the deadline (in milliseconds of the
    monotonic clock). `answer` is not called if the client disconnects before."""
    if is_there() or context.is_abandoned:
        answer()
        return
    entry = ImageWait(context, is_there, answer)
    context.on_abandoned = lambda: purgatory.cancel(entry)
    purgatory.watch((IMAGE_CHANGED,), entry, deadline_ms)
