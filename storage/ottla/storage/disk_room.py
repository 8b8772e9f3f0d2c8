"""Whether a directory's volume has room: enough, filling, full; and what is said of each change.

Pure.  Measurements and refused writes go in with the time, a change comes out when there is one to
be logged.  Invariants: OneLineForEachChange (a state is said once, and said again only after it was
left), and FullUntilWritesFit (a full directory has room again only after no write was refused for a
while and more is free than a few batches take).
"""

from enum import Enum

from ottla.model.limits import GIB, KIB, MIB
from ottla.model.settings.disks import DiskConfig
from ottla.model.values import frozen
from ottla.storage.disk_seam import Space

QUIET_MS = 10_000
"""How long no write was refused before a full directory has room again.  Shorter lets a quota,
which no measurement shows, be told as room between two writes; longer hides that writes fit."""

ROOM_AGAIN_BYTES = 16 * MIB
"""What is free then: less is gone with the next batches."""

ROOM_AGAIN_PART = 20
"""On a small volume this part of it is enough."""

CLEARANCE = 1.25
"""A directory stops filling at so much more than it began at: retention that frees and producers
that fill would else have a line each time."""

SILENT_MS = 30_000
"""How long a measurement may take before the disk hangs: an unmounted network share never answers,
a busy disk answers in a second or two."""


class RoomState(Enum):
    """How much room there is."""

    ENOUGH = "ok"
    FILLING = "filling"
    FULL = "full"


class ChangeKind(Enum):
    """What is said."""

    FILLING = "filling"
    FULL = "full"
    HAS_ROOM = "has room"
    HANGS = "hangs"
    ANSWERS = "answers"


@frozen
class RoomChange:
    """One line for the log."""

    kind: ChangeKind
    text: str
    space: Space | None


@frozen(kw_only=True)
class RoomReport:
    """What a node tells of one directory."""

    path: str
    state: RoomState
    space: Space | None
    """The last measurement; None before the first."""
    age_ms: int
    """How old that is."""
    refused_count: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


@frozen
class RoomWords:
    """How a kind of directory is spoken of."""

    title: str
    full_means: str
    """What a full disk does to who uses the directory."""
    cure: str


OF_LOGS = RoomWords(
    "log directory",
    "what is produced there is refused until it has room, and then taken again without a restart",
    "shorten retention ('ottla config set'), trim or delete topics ('ottla topic list' shows what "
    "takes the room), or enlarge the volume; never delete files of a log directory by hand",
)
OF_METADATA = RoomWords(
    "the metadata log's directory",
    "this node lives on reserved.space, and with that used up follows no change and casts no vote",
    "free or enlarge the volume, whose other files take the room; never delete files of the "
    "metadata log by hand",
)


class DiskRoom:
    """What is known of the room in one directory."""

    def __init__(self, path: str, bounds: DiskConfig, words: RoomWords = OF_LOGS) -> None:
        self.path = path
        self.state = RoomState.ENOUGH
        self.space: Space | None = None
        """The last measurement; None before the first."""
        self.measured_ms: int | None = None
        self.refused_count = 0
        """Writes that found no room."""
        self._bounds = bounds
        self._words = words
        self._subject = f"{words.title} {path}"
        self._refused_ms: int | None = None
        self._is_measured_since = True
        """Whether the last measurement was made after the state began."""
        self._asked_ms: int | None = None
        self._is_hanging = False

    # --- what happens ---

    def on_asked(self, now_ms: int) -> None:
        """Take note that a measurement begins."""
        if self._asked_ms is None:
            self._asked_ms = now_ms

    def on_silence(self, now_ms: int) -> RoomChange | None:
        """Take note that a measurement under way has not ended yet."""
        if self._is_hanging or self.silent_ms(now_ms) < SILENT_MS:
            return None
        self._is_hanging = True
        return RoomChange(ChangeKind.HANGS, self._hanging(now_ms), self.space)

    def on_unmeasured(self) -> RoomChange | None:
        """Take note that the disk answered a measurement with an error."""
        return self._answered()

    def on_measured(self, space: Space, now_ms: int) -> list[RoomChange]:
        """Take a measurement; return what is to be logged."""
        changes = [self._answered()]
        self.space = space
        self.measured_ms = now_ms
        self._is_measured_since = True
        changes.append(self._judge(space, now_ms))
        return [change for change in changes if change is not None]

    def on_refused(self, now_ms: int) -> RoomChange | None:
        """Take note of a write that found no room."""
        self.refused_count += 1
        self._refused_ms = now_ms
        if self.state is not RoomState.FULL:
            self._is_measured_since = False
        return self._become(RoomState.FULL)

    # --- what is known ---

    def report(self, now_ms: int) -> RoomReport:
        """Return what a node tells of the directory."""
        problems = (self.problem, self.hanging(now_ms))
        return RoomReport(
            path=self.path,
            state=self.state,
            space=self.space,
            age_ms=0 if self.measured_ms is None else now_ms - self.measured_ms,
            refused_count=self.refused_count,
            problems=tuple(one for one in problems if one is not None),
            warnings=() if self.warning is None else (self.warning,),
        )

    @property
    def problem(self) -> str | None:
        """What keeps the directory from taking writes, as a sentence; None when nothing does."""
        return self._full() if self.state is RoomState.FULL else None

    @property
    def warning(self) -> str | None:
        """What will keep it from taking writes unless an operator acts."""
        return self._filling() if self.state is RoomState.FILLING else None

    def hanging(self, now_ms: int) -> str | None:
        """Return for how long the disk has not answered, as a sentence, once that is long."""
        return self._hanging(now_ms) if self._is_hanging else None

    def silent_ms(self, now_ms: int) -> int:
        """Return for how long a measurement is under way; 0 when none is."""
        return 0 if self._asked_ms is None else now_ms - self._asked_ms

    # --- how it is judged ---

    def _answered(self) -> RoomChange | None:
        self._asked_ms = None
        if not self._is_hanging:
            return None
        self._is_hanging = False
        return RoomChange(ChangeKind.ANSWERS, f"{self._subject}: its disk answers again", None)

    def _judge(self, space: Space, now_ms: int) -> RoomChange | None:
        if space.usable_bytes <= 0:
            return self._become(RoomState.FULL)
        if self.state is RoomState.FULL and not self._has_room_again(space, now_ms):
            return None
        bound = self._bound(space)
        if self.state is RoomState.FILLING:
            bound = min(bound * CLEARANCE, space.total_bytes)
        is_short = space.usable_bytes < bound
        return self._become(RoomState.FILLING if is_short else RoomState.ENOUGH)

    def _bound(self, space: Space) -> float:
        of_percent = space.total_bytes * self._bounds.warn_free_percent / 100
        return max(of_percent, self._bounds.warn_free_bytes)

    def _has_room_again(self, space: Space, now_ms: int) -> bool:
        if self._refused_ms is not None and now_ms - self._refused_ms < QUIET_MS:
            return False
        return space.usable_bytes >= min(ROOM_AGAIN_BYTES, space.total_bytes // ROOM_AGAIN_PART)

    def _become(self, state: RoomState) -> RoomChange | None:
        before, self.state = self.state, state
        if state is before:
            return None
        if state is RoomState.FULL:
            return RoomChange(ChangeKind.FULL, self._full(), self.space)
        if state is RoomState.FILLING and before is RoomState.ENOUGH:
            return RoomChange(ChangeKind.FILLING, self._filling(), self.space)
        text = f"{self._subject} has room again: {self._left()}"
        return RoomChange(ChangeKind.HAS_ROOM, text, self.space)

    # --- how it is said ---

    def _full(self) -> str:
        found = self._left() if self._is_measured_since else "a write found no room"
        return f"{self._subject} is full ({found}): {self._words.full_means}; {self._words.cure}"

    def _filling(self) -> str:
        return f"{self._subject} fills up ({self._left()}): {self._words.cure}"

    def _hanging(self, now_ms: int) -> str:
        return (
            f"{self._subject} has not answered for {self.silent_ms(now_ms) // 1_000} s: its disk "
            "or network mount hangs; look at the device and the kernel's log (dmesg)"
        )

    def _left(self) -> str:
        if self.space is None:
            return "its room is not measured yet"
        total, usable = self.space
        percent = f", {100 * usable / total:.0f} %" if total else ""
        return f"{amount(usable)} of {amount(total)} are free{percent}"


def amount(size_bytes: int) -> str:
    """Return a number of bytes as a person says it."""
    for unit, name in ((1024 * GIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            count = size_bytes / unit
            return f"{count:,.0f} {name}" if count >= 100 else f"{count:.3g} {name}"
    return f"{size_bytes} bytes"
