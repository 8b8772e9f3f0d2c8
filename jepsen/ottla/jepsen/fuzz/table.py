"""The fuzz targets by name. The code that a target tests is imported when the target is used."""

from collections.abc import Iterator
from importlib import import_module

from ottla.jepsen.fuzz.target import FuzzTarget

TARGETS = {
    "frames": "frames",
    "messages": "messages",
    "answers": "answers",
    "batches": "batches",
    "codecs": "batches",
    "recovery": "recovery",
    "files": "files",
    "metadata": "metadata",
    "groups": "groups",
    "peers": "peers",
    "decisions": "decisions",
    "pushes": "pushes",
    "logins": "logins",
    "scram": "logins",
    "jwts": "logins",
    "acls": "acls",
    "principals": "principals",
}
"""Module name of each fuzz target, by the target's name. The constant with the target's name in
upper case is the target itself."""


def target_of(name: str) -> FuzzTarget:
    """Return the fuzz target with a name. Raises KeyError if the name is unknown."""
    module = import_module(f"ottla.jepsen.fuzz.targets.{TARGETS[name]}")
    target: FuzzTarget = getattr(module, name.upper())
    assert target.name == name
    return target


def all_targets() -> Iterator[FuzzTarget]:
    """Yield every fuzz target."""
    for name in TARGETS:
        yield target_of(name)
