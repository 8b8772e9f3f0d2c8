"""Waits until a broker has compacted a topic, according to the checkpoints in its log
directories."""

import time
from pathlib import Path

from ottla.model.errors import ErrorCode, RefusedError

CHECKPOINT = "cleaner-offset-checkpoint"
TIMEOUT_S = 180.0
LOOK_AGAIN_S = 0.02


def wait_until_compacted(root: Path, topic: str) -> None:
    """Wait until all logs of a topic below a broker's directory are compacted up to their active
    segments.

    Raises RefusedError if that takes too long.
    """
    ends_at = time.monotonic() + TIMEOUT_S
    while dirty := dirty_logs(root, topic):
        if time.monotonic() > ends_at:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"not compacted: {', '.join(dirty)}")
        time.sleep(LOOK_AGAIN_S)


def dirty_logs(root: Path, topic: str) -> list[str]:
    """Return the names of a topic's partition logs that can be compacted further."""
    found = []
    for log in sorted(root.rglob(f"{topic}-*[0-9]/")):
        name, _, partition = log.name.rpartition("-")
        if name != topic:
            continue
        active = max((int(path.stem) for path in log.glob("*.log")), default=0)
        if clean_to(log.parent / CHECKPOINT, topic, partition) < active:
            found.append(log.name)
    return found


def clean_to(checkpoint: Path, topic: str, partition: str) -> int:
    """Return the offset up to which a partition log is compacted, or 0 if there is no
    checkpoint."""
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    for line in lines:
        if line.split()[:2] == [topic, partition]:
            return int(line.split()[2])
    return 0
