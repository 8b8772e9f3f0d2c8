"""What a misspelt word of a command line was meant to be (pure)."""

import argparse
from collections.abc import Iterable, Iterator
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean X?)" for the nearest known word, else nothing."""
    found = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


def cure_of_usage(parser: argparse.ArgumentParser, message: str) -> str:
    """Return what a word that argparse refused may have meant, else nothing."""
    _, is_choice, choice = message.partition("invalid choice: ")
    if is_choice:
        word = choice.partition(" (")[0].strip("'\"")
        choices = (one for action in parser._actions for one in action.choices or ())
        return did_you_mean(word, map(str, choices))
    _, is_unknown, words = message.partition("unrecognized arguments: ")
    options = (one.partition("=")[0] for one in words.split() if one.startswith("-"))
    word = next(options, "")
    return did_you_mean(word, _options_of(parser)) if is_unknown and word else ""


def _options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its verbs."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _options_of(verb)
