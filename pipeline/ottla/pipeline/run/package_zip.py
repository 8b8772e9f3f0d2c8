"""Ottla's own modules as one zip, for executors that have not installed it.

Only Python of ours goes in: what it is built on (trio, crc32c, lz4, pyarrow, …) is partly compiled
and must be on the executors, by their image or by an environment that is sent along (`--archives`).
"""

import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("model", "wire", "proto", "telemetry", "client", "pipeline")
"""What `ottla.pipeline` may import, itself included."""
FOUND_BY_SPARK = "pyspark_ottla"
"""By its name Spark finds `format("ottla")` without a line of code."""
NAME = "ottla-packages.zip"
KEPT = {".py", ".schema"}


def make_package_zip(path: Path) -> Path:
    """Write the zip and return its path."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        # A package without __init__ is found in a zip only if its directory has an entry.
        zipped.writestr(zipfile.ZipInfo("ottla/"), b"")
        for name, source in sorted(package_files().items()):
            zipped.write(source, name)
    return path


def package_files() -> dict[str, Path]:
    """Return every file that goes in: its name within the zip, and where it lies."""
    import ottla

    found: dict[str, Path] = {}
    for portion in map(Path, ottla.__path__):
        for package in PACKAGES:
            for source in (portion / package).rglob("*"):
                if source.is_file() and source.suffix in KEPT:
                    # What comes first on the path is what this process imports.
                    found.setdefault(str(Path("ottla") / source.relative_to(portion)), source)
    entry = find_spec(FOUND_BY_SPARK)
    if entry is not None and entry.origin is not None:
        found[f"{FOUND_BY_SPARK}/__init__.py"] = Path(entry.origin)
    return found
