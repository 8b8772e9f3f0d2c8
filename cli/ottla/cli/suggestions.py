"""Suggests corrections of misspelt words of a command line. Pure."""

import argparse
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

SIMILARITY_MIN = 0.7
"""Minimum similarity of a suggested word to the misspelt word, from 0 to 1. Smaller values suggest
unrelated words; larger values miss short words with two typing errors."""


TOPIC_ARGUMENT = "the topic is given without an option"
OPTIONS_OF_OTHERS = {
    "--topic": TOPIC_ARGUMENT,
    "-t": TOPIC_ARGUMENT,
    "--from-beginning": "records are read from the beginning, unless --offset end is given",
    "--max-messages": "use --count",
    "--partitions": "'ottla topic add-partitions' adds partitions to a topic",
}
"""Remedies for options that have another name in Kafka's tools or kcat than in Ottla. Only commands
without such an option show its remedy."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the text " (did you mean X?)" with the known word that is most similar to `word`, or
    an empty text if no known word is similar."""
    # Dashes are removed because all options have them: with them --produce resembled --prune.
    names = {one.lstrip("-"): one for one in known}
    found = get_close_matches(word.lstrip("-"), names, n=1, cutoff=SIMILARITY_MIN)
    return f" (did you mean {names[found[0]]!r}?)" if found else ""


def remedy_for_usage(parser: argparse.ArgumentParser, message: str) -> str:
    """Return a suggestion for the word that argparse refused in `message`, or an empty text if no
    suggestion is known."""
    _, is_choice, choice = message.partition("invalid choice: ")
    if is_choice:
        word = choice.partition(" (")[0].strip("'\"")
        choices = [str(one) for action in parser._actions for one in action.choices or ()]
        near = did_you_mean(word, choices)
        is_verb = message.startswith("argument VERB:")
        return near if near or not is_verb else f"; the verbs are {', '.join(choices)}"
    _, is_unknown, words = message.partition("unrecognized arguments: ")
    options = (one.partition("=")[0] for one in words.split() if one.startswith("-"))
    word = next(options, "")
    if is_unknown and word in OPTIONS_OF_OTHERS:
        return f" ({OPTIONS_OF_OTHERS[word]})"
    known = set(_options_of(parser))
    return did_you_mean(word, known) if is_unknown and word else ""


def _options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the names of all options of an argument parser, such as --topic."""
    for action in parser._actions:
        yield from action.option_strings
