"""`ottla cluster features`: shows and changes the finalized levels of features (KIP-584)."""

import argparse
from collections.abc import Iterable, Mapping

from ottla.cli.common import print_json
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb, verbs_of
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cluster import FeatureLevels, FeatureUpdateKind
from ottla.metadata.features import (
    FORMER_RELEASE,
    OTTLA_VERSION,
    SHARE_VERSION,
    SHARE_VERSION_OF_GROUPS,
    level_name,
    level_named,
)
from ottla.model.errors import ConfigError

COLUMNS = ("FEATURE", "FINALIZED", "LOWEST", "HIGHEST")
CHANGES = ("FEATURE", "FROM", "TO")


async def describe(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla cluster features describe`: print the finalized level of each feature, and the levels
    that the broker supports. Returns the exit code."""
    found = sorted((await admin.describe_features()).items())
    if arguments.format == "json":
        print_json(
            [
                {
                    "feature": name,
                    "finalized": one.finalized,
                    "lowest": one.supported_min,
                    "highest": one.supported_max,
                }
                for name, one in found
            ]
        )
        return 0
    rows = [(name, *(level_name(name, level) for level in one)) for name, one in found]
    show(arguments, COLUMNS, rows)
    return 0


async def upgrade(admin: Admin, arguments: argparse.Namespace) -> int:
    """Raise the finalized levels of features, and return the exit code."""
    return await change_levels(
        admin, arguments, levels_of(arguments.levels), FeatureUpdateKind.UPGRADE
    )


async def downgrade(admin: Admin, arguments: argparse.Namespace) -> int:
    """Lower the finalized levels of features, and return the exit code."""
    kind = FeatureUpdateKind.SAFE_DOWNGRADE
    if arguments.unsafe:
        kind = FeatureUpdateKind.UNSAFE_DOWNGRADE
    return await change_levels(admin, arguments, levels_of(arguments.levels), kind)


async def change_levels(
    admin: Admin,
    arguments: argparse.Namespace,
    levels: Mapping[str, int],
    kind: FeatureUpdateKind,
) -> int:
    """Show changes of feature levels, and make them if they are confirmed. Returns the exit code.
    Raises RefusedError if the controllers refuse the changes."""
    known = await admin.describe_features()
    changes = changes_of(levels, known)
    # The controllers check all levels before a person is asked.
    await admin.update_features(levels, kind=kind, is_dry_run=True)
    if not changes:
        note("the levels are already as given")
        return 0
    for consequence in consequences_of(changes, known):
        note(f"ottla cluster features: {consequence}")
    if not arguments.yes:
        show_changes(arguments, changes)
    if not await confirm_in_loop(arguments, question_of(kind)):
        return 0
    await admin.update_features(levels, kind=kind)
    if arguments.format == "json":
        print_json({"finalized": levels})
    else:
        for name, _, level in changes:
            say(f"{name} is {level_name(name, level)}")
    return 0


def question_of(kind: FeatureUpdateKind) -> str:
    """Return the question that the command asks the user before it changes feature levels, by the
    kind of change."""
    if kind is FeatureUpdateKind.UPGRADE:
        return "raise these levels? A level that changes records is never lowered again"
    return "lower these levels?"


def consequences_of(
    changes: Iterable[tuple[str, int, int]], known: Mapping[str, FeatureLevels]
) -> list[str]:
    """Return one sentence for each change of a feature level that enables or disables share
    groups."""
    found = []
    for name, now, level in changes:
        if name != SHARE_VERSION or (now > 0) == (level > 0):
            continue
        if level < SHARE_VERSION_OF_GROUPS:
            found.append(
                "share groups stop, and their consumers fail; offsets, delivery states and "
                "settings are kept until share.version is raised again"
            )
        elif OTTLA_VERSION in known and known[OTTLA_VERSION].finalized == 0:
            found.append(
                f"no broker can return to release {FORMER_RELEASE} until share.version is 0 again"
            )
    return found


def show_changes(arguments: argparse.Namespace, changes: Iterable[tuple[str, int, int]]) -> None:
    """Print the feature levels before and after the requested changes."""
    if arguments.format == "json":
        print_json([{"feature": name, "from": old, "to": new} for name, old, new in changes])
        return
    rows = [(name, level_name(name, old), level_name(name, new)) for name, old, new in changes]
    show(arguments, CHANGES, rows)


def changes_of(
    levels: Mapping[str, int], known: Mapping[str, FeatureLevels]
) -> list[tuple[str, int, int]]:
    """Return the features whose level a request would change, as tuples (feature, finalized level,
    requested level)."""
    off = FeatureLevels(0, 0, 0)
    found = ((name, known.get(name, off).finalized, level) for name, level in levels.items())
    return [(name, now, level) for name, now, level in found if now != level]


def levels_of(texts: Iterable[str]) -> dict[str, int]:
    """Parse texts such as `metadata.version=33` or `metadata.version=4.4-IV2`. Returns the level of
    each feature.

    Raises ConfigError if a text is not a level, or if a feature occurs twice.
    """
    levels: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        level = level_named(name, value)
        if not name or level is None:
            raise ConfigError(
                "FEATURE=LEVEL", f"is {text!r}; write, for example, metadata.version=33"
            )
        if name in levels:
            raise ConfigError("FEATURE=LEVEL", f"names {name} twice")
        levels[name] = level
    return levels


LEVELS = option("levels FEATURE=LEVEL ...", "levels to finalize, as numbers or names of releases")

FEATURES = verbs_of(
    "features",
    "show, raise and lower the levels of features",
    admin_verb("describe", "show the finalized and the supported levels", describe),
    admin_verb("upgrade", "raise levels of features", upgrade, LEVELS, CONFIRMATION),
    admin_verb(
        "downgrade",
        "lower levels of features",
        downgrade,
        LEVELS,
        option("--unsafe", "send an unsafe downgrade, which controllers refuse like a safe one"),
        CONFIRMATION,
    ),
)
