"""Text files with the fuzzing inputs worth keeping, one file per target. An input is one line in
hex, with a comment about the input after `#`."""

from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".txt"


def read_kept(folder: Path, target: str) -> Iterator[bytes]:
    """Yield the inputs kept for the fuzz target named `target`. Yields nothing if there is no
    file."""
    path = folder / f"{target}{SUFFIX}"
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            yield bytes.fromhex(text)


def add_kept(folder: Path, target: str, data: bytes, what: str) -> Path:
    """Append an input to the file of its fuzz target with the comment `what`, unless the file
    already contains the input. Returns the path of the file."""
    path = folder / f"{target}{SUFFIX}"
    if data not in read_kept(folder, target):
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{data.hex()}  # {' '.join(what.split())}\n")
    return path
