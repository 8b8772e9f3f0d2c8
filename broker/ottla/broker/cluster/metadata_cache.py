"""What this broker knows of the cluster, and requests that wait for it to know more.

Pure.  `MetadataCache` is the first publisher, so that every handler reads the newest image;
`ImageWatch` is the last: who waits for a topic to appear is woken when the replicas of it are
there too.
"""

from collections.abc import Callable

from ottla.broker.network.dispatch import RequestContext
from ottla.broker.network.purgatory import Purgatory, WaitingEntry
from ottla.broker.network.response_queue import ResponseSlot
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage

IMAGE_CHANGED = "the metadata image has changed"
"""The purgatory key of everybody who waits for a newer image."""


class MetadataCache:
    """Holds the current image."""

    __slots__ = ("followed_offset", "image", "is_opening")

    def __init__(self, is_opening: Callable[[str], bool] = lambda topic: False) -> None:
        self.image: MetadataImage = EMPTY
        self.followed_offset = EMPTY.provenance.offset
        """Offset of the last record that all of this broker has followed."""
        self.is_opening = is_opening
        """Says whether logs of a topic are being opened on this broker for the first time."""

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "metadata cache"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take the newer image."""
        self.image = image


class ImageWatch:
    """Wakes who waits for a newer image, when all the broker has followed it."""

    def __init__(self, purgatory: Purgatory, metadata: MetadataCache) -> None:
        self._purgatory = purgatory
        self._metadata = metadata

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "image watch"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Let them look at the image."""
        self._metadata.followed_offset = image.provenance.offset
        self._purgatory.wake(IMAGE_CHANGED)


class ImageWait(WaitingEntry):
    """A request that is answered when the image shows something, or at its deadline."""

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
        """Answer if the image shows it."""
        if not self._is_there():
            return False
        self._answer()
        return True

    def on_expire(self) -> None:
        """Answer all the same: what was asked for has been done, only not seen here yet."""
        self._answer()

    def on_fault(self, fault: Exception) -> None:
        """Close the connection."""
        self._slot.fail(fault)


def answer_when(
    purgatory: Purgatory,
    context: RequestContext,
    is_there: Callable[[], bool],
    answer: Callable[[], None],
    *,
    deadline_ms: int,
) -> None:
    """Call `answer` once `is_there` says so or the deadline has come, unless the client leaves."""
    if is_there() or context.slot.is_abandoned:
        answer()
        return
    entry = ImageWait(context.slot, is_there, answer)
    context.slot.on_abandoned = lambda: purgatory.cancel(entry)
    purgatory.watch((IMAGE_CHANGED,), entry, deadline_ms)
