"""Suggestions for misspelt words of a command line.  Pure."""

import argparse
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

SIMILARITY_MIN = 0.7
"""Smallest similarity of a suggestion, from 0 to 1. Smaller values suggest unrelated words; larger
values miss short words with two typing errors."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean X?)" for the most similar known word, or an empty text."""
    # Dashes are removed because all options have them: with them --produce resembled --prune.
    names = {one.lstrip("-"): one for one in known}
    found = get_close_matches(word.lstrip("-"), names, n=1, cutoff=SIMILARITY_MIN)
    return f" (did you mean {names[found[0]]!r}?)" if found else ""


def remedy_for_usage(parser: argparse.ArgumentParser, message: str) -> str:
    """Return a suggestion for a word that argparse refused, or an empty text."""
    _, is_choice, choice = message.partition("invalid choice: ")
    if is_choice:
        word = choice.partition(" (")[0].strip("'\"")
        choices = (one for action in parser._actions for one in action.choices or ())
        return did_you_mean(word, map(str, choices))
    _, is_unknown, words = message.partition("unrecognized arguments: ")
    options = (one.partition("=")[0] for one in words.split() if one.startswith("-"))
    word = next(options, "")
    known = set(_options_of(parser))
    # An option that another verb has is spelt correctly.
    return did_you_mean(word, known) if is_unknown and word and word not in known else ""


def _options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its verbs."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _options_of(verb)
