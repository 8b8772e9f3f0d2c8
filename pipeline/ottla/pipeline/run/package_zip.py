"""Writes Ottla's own modules to one zip file, for executors on which Ottla is not installed.

The zip file contains only Ottla's Python modules. Its dependencies (trio, crc32c, lz4, pyarrow, …)
are partly compiled. They must be present on the executors: in their image, or in an environment
that is sent with the query (`--archives`).
"""

import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("model", "wire", "proto", "telemetry", "storage", "client", "pipeline")
"""Packages of Ottla that the zip file contains: `pipeline`, and all that it may import."""
FOUND_BY_SPARK = "pyspark_ottla"
"""Name of the package by whose prefix Spark finds `format("ottla")` without a call to register
it."""
NAME = "ottla-packages.zip"
KEPT = {".py", ".schema"}


def make_package_zip(path: Path) -> Path:
    """Write the zip file of Ottla's modules and return its path."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        # In a zip, a package without __init__.py is found only if the zip has an entry for its
        # directory.
        zipped.writestr(zipfile.ZipInfo("ottla/"), b"")
        for name, source in sorted(package_files().items()):
            zipped.write(source, name)
    return path


def package_files() -> dict[str, Path]:
    """Return the path of every file that the zip file must contain, by its name within the zip
    file."""
    import ottla

    found: dict[str, Path] = {}
    for portion in map(Path, ottla.__path__):
        for package in PACKAGES:
            for source in (portion / package).rglob("*"):
                if source.is_file() and source.suffix in KEPT:
                    # This process imports the first module of that name on the path, so the zip
                    # contains that one.
                    found.setdefault(str(Path("ottla") / source.relative_to(portion)), source)
    entry = find_spec(FOUND_BY_SPARK)
    if entry is not None and entry.origin is not None:
        found[f"{FOUND_BY_SPARK}/__init__.py"] = Path(entry.origin)
    return found
