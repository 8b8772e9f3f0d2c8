"""Inputs worth keeping: a text file a target, one input a line in hex, `#` before what it is."""

from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".txt"


def read_kept(folder: Path, target: str) -> Iterator[bytes]:
    """Yield the inputs kept for a target; none when there is no file."""
    path = folder / f"{target}{SUFFIX}"
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            yield bytes.fromhex(text)


def add_kept(folder: Path, target: str, data: bytes, what: str) -> Path:
    """Keep one more input, unless it is there."""
    path = folder / f"{target}{SUFFIX}"
    if data not in read_kept(folder, target):
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{data.hex()}  # {' '.join(what.split())}\n")
    return path
