"""Declarations of command-line options, from which argument parsers, help texts and documentation
pages are generated."""

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

REPEATED = "..."


class Option(NamedTuple):
    """Declaration of a command-line option or positional argument, for argparse."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declare the option in an argument parser, or in a group of options of a parser."""
        parser.add_argument(*self.names, **self.settings)


class OneOf(NamedTuple):
    """Declaration of a group of mutually exclusive command-line options."""

    options: tuple[Option, ...]
    is_required: bool

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declare the group of mutually exclusive options in an argument parser."""
        group = parser.add_mutually_exclusive_group(required=self.is_required)
        for each in self.options:
            each.add_to(group)


class Section(NamedTuple):
    """Declaration of command-line options that form a section with its own title in the help."""

    title: str
    options: tuple[Option, ...]

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """Declare the titled group of options in an argument parser."""
        group = parser.add_argument_group(self.title)
        for each in self.options:
            each.add_to(group)


Declared = Option | OneOf | Section


def option(spelling: str, meaning: str, **settings: Any) -> Option:
    """Return the declaration of an option. `spelling` contains its names, its metavar, and `...` if
    it may be repeated. `meaning` is the help text.

    `--force` declares a flag, and `-c --config KEY=VALUE ...` an option with values. `names NAME
    ...` declares a positional argument `names` that is shown as NAME. An option with choices needs
    no metavar.
    """
    words = spelling.split()
    is_repeated = words[-1] == REPEATED
    if is_repeated:
        words.pop()
    is_positional = not words[0].startswith("-")
    names = words[:1] if is_positional else [word for word in words if word.startswith("-")]
    declared: dict[str, Any] = {"help": meaning}
    if len(words) > len(names):
        declared["metavar"] = words[-1]
    elif not is_positional and not settings.keys() & {"choices", "action", "metavar", "nargs"}:
        declared["action"] = "store_true"
    if is_repeated and is_positional:
        declared["nargs"] = "+"
    elif is_repeated:
        declared |= {"action": "append", "default": []}
    return Option(tuple(names), declared | settings)


def one_of(*options: Option, required: bool = False) -> OneOf:
    """Return a declaration of mutually exclusive command-line options."""
    return OneOf(options, required)


def declare_options(parser: argparse.ArgumentParser, options: Iterable[Declared]) -> None:
    """Declare command-line options in an argument parser."""
    for each in options:
        each.add_to(parser)
