"""Write the committed `*_pb2.py` and `*_pb2.pyi` from the `*.proto` beside this file.

Run as `python -m ottla.proto.generate` after any change (needs the `test` extra for protoc); a
test compares the committed descriptors with what protoc makes of the sources today.
"""

from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # it ships no types

PORTION = Path(__file__).parents[2]
"""The folder `proto/`, under which the sources are found by their import path."""

SOURCES = tuple(
    sorted(str(path.relative_to(PORTION)) for path in PORTION.glob("ottla/proto/*.proto"))
)


def generate(out: Path) -> None:
    """Write the modules of all sources under `out`, in their packages' folders."""
    run(f"--python_out={out}", f"--pyi_out={out}")
    for stub in sorted(out.glob("ottla/proto/*_pb2.pyi")):
        # protoc leaves the mapping bare, which mypy --strict refuses.
        text = stub.read_text().replace("_Mapping]", "_Mapping[str, object]]")
        stub.write_text(text)


def run(*options: str) -> None:
    """Call protoc on all sources; raise when it refuses."""
    well_known = files("grpc_tools") / "_proto"
    status = protoc.main(["protoc", f"-I{PORTION}", f"-I{well_known}", *options, *SOURCES])
    if status != 0:
        raise SystemExit(status)


if __name__ == "__main__":
    generate(PORTION)
