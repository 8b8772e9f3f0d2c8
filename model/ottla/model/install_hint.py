"""The command that installs an optional extra of Ottla. Ottla itself is not available from a
package index."""

from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
"""Directory of pyproject.toml if this module runs from a source checkout."""


def install_hint(extra: str, checkout: Path = CHECKOUT) -> str:
    """Return the command that installs an extra, in the same way as Ottla itself was installed.

    For a source checkout, it is the command in the README. For an installed wheel, the command
    names the packages that the extra requires, which are available from every package index.
    """
    packages = [] if (checkout / "pyproject.toml").exists() else _packages_of(extra)
    if packages:
        return f"pip install {' '.join(packages)}"
    return f"pip install -e '.[{extra}]' in the checkout of Ottla"


def _packages_of(extra: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        found = requires("ottla") or []
    except PackageNotFoundError:
        return []
    marked = (one.partition(";") for one in found)
    return [
        f"'{name.strip()}'"
        for name, _, marker in marked
        if marker.replace('"', "'").strip() == f"extra == '{extra}'"
    ]
