"""Generator of the committed `*_pb2.py` and `*_pb2.pyi` from the `*.proto` files in this folder.

Run `python -m ottla.proto.generate` after any change (protoc needs the `test` extra). A test
compares the committed descriptors with the descriptors that protoc generates from the present
sources.
"""

from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # it ships no types

PORTION = Path(__file__).parents[2]
"""Path of the folder `proto/`. protoc resolves the paths of the `*.proto` files relative to it."""

SOURCES = tuple(
    sorted(str(path.relative_to(PORTION)) for path in PORTION.glob("ottla/proto/*.proto"))
)


def generate(out: Path) -> None:
    """Generate the Python modules of all `*.proto` files below the folder `out`, in the folders of
    their packages."""
    run(f"--python_out={out}", f"--pyi_out={out}")
    for stub in sorted(out.glob("ottla/proto/*_pb2.pyi")):
        # protoc generates the mapping without type arguments, which mypy --strict rejects.
        text = stub.read_text().replace("_Mapping]", "_Mapping[str, object]]")
        stub.write_text(text)


def run(*options: str) -> None:
    """Call protoc on all `*.proto` files with the given options. Raises an error if protoc
    fails."""
    well_known = files("grpc_tools") / "_proto"
    status = protoc.main(["protoc", f"-I{PORTION}", f"-I{well_known}", *options, *SOURCES])
    if status != 0:
        raise SystemExit(status)


if __name__ == "__main__":
    generate(PORTION)
