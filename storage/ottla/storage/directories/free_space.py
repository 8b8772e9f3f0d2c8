"""Level of the free space on a directory's volume (enough, filling or full), and a log message for
each change.

Pure. Inputs are measurements and refused writes with their times. Outputs are changes to log.
Invariants:
- OneLineForEachChange: a state is logged once, and again only after another state.
- FullUntilWritesFit: a full directory counts as having space again only if no write was refused for
  a while, and more space is free than a few batches need.
"""

from enum import Enum

from ottla.model.amounts import amount
from ottla.model.limits import MIB
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.values import frozen
from ottla.storage.disk.disk_seam import Space

QUIET_MS = 10_000
"""Time in ms without a refused write after which a full directory counts as having space again. A
disk quota may refuse writes although measurements show free space: with a shorter time, space is
then reported between two refused writes. With a longer time, new space is reported later."""

FREE_AGAIN_BYTES = 16 * MIB
"""Number of bytes that must be free before a full directory counts as having space again. Less
space would be used up by the next batches."""

FREE_AGAIN_PART = 20
"""Divisor of a volume's size in bytes. A full directory counts as having space again when the
quotient, or `FREE_AGAIN_BYTES` if that is less, is free."""

CLEARANCE = 1.25
"""Factor by which the free space must exceed the warning level before the warning ends. With a
smaller factor, a message is logged each time that retention frees space and producers fill it."""

SILENT_MS = 30_000
"""Duration in ms of a free-space measurement after which the disk counts as hanging. An unmounted
network share never answers; a busy disk answers within a second or two."""


class FreeSpaceLevel(Enum):
    """Level of the free space on a directory's volume: enough, filling or full."""

    ENOUGH = "ok"
    FILLING = "filling"
    FULL = "full"


class ChangeKind(Enum):
    """Kind of a change of a directory's free space, as used in log messages."""

    FILLING = "filling"
    FULL = "full"
    HAS_SPACE = "has room"
    HANGS = "hangs"
    ANSWERS = "answers"


@frozen
class FreeSpaceChange:
    """One change of a directory's level of free space, with the message to log."""

    kind: ChangeKind
    text: str
    space: Space | None


@frozen(kw_only=True)
class FreeSpaceReport:
    """Free space of one directory for status reports: its level, the last measurement, refused
    writes, problems and warnings."""

    path: str
    state: FreeSpaceLevel
    space: Space | None
    """Last measurement of the directory's free space, or None before the first measurement."""
    age_ms: int
    """Age in ms of the last measurement of free space, or 0 before the first measurement."""
    refused_count: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


@frozen
class FreeSpaceTexts:
    """Parts of log messages about free space that differ between kinds of directories, such as log
    directories."""

    title: str
    full_means: str
    """Effect that a full disk has on the users of the directory, as part of a log message."""
    cure: str


OF_LOGS = FreeSpaceTexts(
    "log directory",
    "what is produced there is refused until it has room, and then taken again without a restart",
    "shorten retention ('ottla config set'), trim or delete topics ('ottla topic list' shows what "
    "takes the room), or enlarge the volume; never delete files of a log directory by hand",
)
OF_METADATA = FreeSpaceTexts(
    "the metadata log's directory",
    "this node lives on reserved.space, and with that used up follows no change and casts no vote",
    "free or enlarge the volume, whose other files take the room; never delete files of the "
    "metadata log by hand",
)


class FreeSpace:
    """Level of the free space on one directory's volume, derived from measurements and refused
    writes."""

    def __init__(self, path: str, bounds: DiskConfig, words: FreeSpaceTexts = OF_LOGS) -> None:
        self.path = path
        self.state = FreeSpaceLevel.ENOUGH
        self.space: Space | None = None
        """Last measurement of the directory's free space, or None before the first measurement."""
        self.measured_ms: int | None = None
        self.refused_count = 0
        """Number of writes to the directory that were refused for lack of space."""
        self._bounds = bounds
        self._words = words
        self._subject = f"{words.title} {path}"
        self._refused_ms: int | None = None
        self._is_measured_since = True
        """True if the free space was measured since the directory entered its current level of free
        space."""
        self._asked_ms: int | None = None
        self._is_hanging = False

    # --- events ---

    def on_asked(self, now_ms: int) -> None:
        """Record that a measurement of the directory's free space has begun."""
        if self._asked_ms is None:
            self._asked_ms = now_ms

    def on_silence(self, now_ms: int) -> FreeSpaceChange | None:
        """Check whether a measurement of the free space takes too long. Returns a change to log if
        the disk now counts as hanging, otherwise None."""
        if self._is_hanging or self.silent_ms(now_ms) < SILENT_MS:
            return None
        self._is_hanging = True
        return FreeSpaceChange(ChangeKind.HANGS, self._hanging(now_ms), self.space)

    def on_unmeasured(self) -> FreeSpaceChange | None:
        """Handle a measurement of the free space that failed with an error. Returns a change to
        log, or None if nothing has changed."""
        return self._answered()

    def on_measured(self, space: Space, now_ms: int) -> list[FreeSpaceChange]:
        """Handle a completed measurement of the directory's free space. Returns the changes of the
        level to log."""
        changes = [self._answered()]
        self.space = space
        self.measured_ms = now_ms
        self._is_measured_since = True
        changes.append(self._judge(space, now_ms))
        return [change for change in changes if change is not None]

    def on_refused(self, now_ms: int) -> FreeSpaceChange | None:
        """Handle a write that was refused for lack of space. Returns a change to log, or None if
        nothing has changed."""
        self.refused_count += 1
        self._refused_ms = now_ms
        if self.state is not FreeSpaceLevel.FULL:
            self._is_measured_since = False
        return self._become(FreeSpaceLevel.FULL)

    # --- queries ---

    def report(self, now_ms: int) -> FreeSpaceReport:
        """Return the directory's free space, the age of the measurement, and the current problems
        and warnings."""
        problems = (self.problem, self.hanging(now_ms))
        return FreeSpaceReport(
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
        """Sentence with the reason why the directory refuses writes. None if it accepts writes."""
        return self._full() if self.state is FreeSpaceLevel.FULL else None

    @property
    def warning(self) -> str | None:
        """Sentence with the reason why the directory will refuse writes if the operator does
        nothing. None if no such reason exists."""
        return self._filling() if self.state is FreeSpaceLevel.FILLING else None

    def hanging(self, now_ms: int) -> str | None:
        """Return a sentence with the time for which the disk has not answered a measurement.
        Returns None if the disk responds."""
        return self._hanging(now_ms) if self._is_hanging else None

    def silent_ms(self, now_ms: int) -> int:
        """Return the time in ms for which the current measurement of free space has been running,
        or 0 without a running measurement."""
        return 0 if self._asked_ms is None else now_ms - self._asked_ms

    # --- decisions ---

    def _answered(self) -> FreeSpaceChange | None:
        self._asked_ms = None
        if not self._is_hanging:
            return None
        self._is_hanging = False
        return FreeSpaceChange(ChangeKind.ANSWERS, f"{self._subject}: its disk answers again", None)

    def _judge(self, space: Space, now_ms: int) -> FreeSpaceChange | None:
        if space.usable_bytes <= 0:
            return self._become(FreeSpaceLevel.FULL)
        if self.state is FreeSpaceLevel.FULL and not self._has_space_again(space, now_ms):
            return None
        bound = self._bound(space)
        if self.state is FreeSpaceLevel.FILLING:
            bound = min(bound * CLEARANCE, space.total_bytes)
        is_short = space.usable_bytes < bound
        return self._become(FreeSpaceLevel.FILLING if is_short else FreeSpaceLevel.ENOUGH)

    def _bound(self, space: Space) -> float:
        of_percent = space.total_bytes * self._bounds.warn_free_percent / 100
        return max(of_percent, self._bounds.warn_free_bytes)

    def _has_space_again(self, space: Space, now_ms: int) -> bool:
        if self._refused_ms is not None and now_ms - self._refused_ms < QUIET_MS:
            return False
        return space.usable_bytes >= min(FREE_AGAIN_BYTES, space.total_bytes // FREE_AGAIN_PART)

    def _become(self, state: FreeSpaceLevel) -> FreeSpaceChange | None:
        before, self.state = self.state, state
        if state is before:
            return None
        if state is FreeSpaceLevel.FULL:
            return FreeSpaceChange(ChangeKind.FULL, self._full(), self.space)
        if state is FreeSpaceLevel.FILLING and before is FreeSpaceLevel.ENOUGH:
            return FreeSpaceChange(ChangeKind.FILLING, self._filling(), self.space)
        text = f"{self._subject} has room again: {self._left()}"
        return FreeSpaceChange(ChangeKind.HAS_SPACE, text, self.space)

    # --- texts ---

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
            return "its free space is not measured yet"
        total, usable = self.space
        percent = f", {100 * usable / total:.0f} %" if total else ""
        return f"{amount(usable)} of {amount(total)} are free{percent}"
