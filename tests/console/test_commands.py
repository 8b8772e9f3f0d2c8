"""Commands that connect to a cluster: each has a page or an action, or a reason for having none."""

from collections.abc import Iterable, Iterator
from importlib import import_module

from ottla.cli.common import CONNECTION
from ottla.cli.main import COMMANDS
from ottla.cli.verbs import Verb
from ottla.console.pages import PAGES

WITHOUT_PAGE = {
    "ottla console": "serves these pages",
    "ottla mcp": "serves agents",
    "ottla backup create": "writes files of the machine that it runs on",
    "ottla backup restore": "reads files of the machine that it runs on",
    "ottla bundle": "writes a file of the machine that it runs on",
    "ottla doctor spark": "checks the machine that it runs on",
    "ottla export": "writes tables of the machine that it runs on",
    "ottla pipeline archive": "runs Spark on the machine that it runs on",
    "ottla pipeline lag": "reads checkpoints of the machine that it runs on",
    "ottla pipeline telemetry": "runs Spark on the machine that it runs on",
    "ottla quota apply": "reads a file of the machine that it runs on",
    "ottla quota export": "writes a file of the machine that it runs on",
    "ottla tier cost": "reads the object store with the credentials of the machine that it runs on",
    "ottla tier explain": "reads the object store, as 'ottla tier cost'",
    "ottla tier fetch": "writes files of the machine that it runs on",
    "ottla tier offload": "an operator's measure on one disk; the pages show its effect",
    "ottla tier restore": "writes the directories of a new cluster",
    "ottla tier topics": "reads the object store, as 'ottla tier cost'",
    "ottla tier verify": "reads the object store, as 'ottla tier cost'",
    "ottla token create": "prints a password, which pages never show",
    "ottla sql": "runs DuckDB on the machine that it runs on",
}
"""Commands without a page, each with the reason."""


def connecting(prefix: str, verbs: Iterable[Verb]) -> Iterator[str]:
    """Yield the verbs that connect to a cluster."""
    for verb in verbs:
        name = f"{prefix} {verb.name}"
        yield from connecting(name, verb.verbs)
        if verb.handler is not None and all(one in verb.options for one in CONNECTION):
            yield name


def commands() -> set[str]:
    """Return the commands of `ottla` that connect to a cluster."""
    found: set[str] = set()
    for name, row in COMMANDS.items():
        for module in map(import_module, {row.module, row.verbs_module or row.module}):
            if hasattr(module, "VERBS"):
                found |= set(connecting(f"ottla {name}", module.VERBS))
            elif all(one in module.OPTIONS for one in CONNECTION):
                found.add(f"ottla {name}")
    return found


def shown() -> set[str]:
    """Return the command lines of pages and actions, without what follows the verb."""
    lines = [line for page in PAGES for line in (page.command, *page.covers)]
    lines += [action.command for page in PAGES for action in page.actions]
    return {one for one in commands() for line in lines if f"{line} ".startswith(f"{one} ")}


def test_each_command_of_a_cluster_has_a_page_or_a_reason() -> None:
    missing = commands() - shown() - WITHOUT_PAGE.keys()
    assert sorted(missing) == []


def test_reasons_are_of_commands() -> None:
    assert WITHOUT_PAGE.keys() <= commands() - shown()
    for page in PAGES:
        assert set(page.covers) <= commands(), page.name
