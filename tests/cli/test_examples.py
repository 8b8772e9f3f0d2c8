"""Each subcommand's help has an example, which the real parser understands."""

import argparse
import shlex
from collections.abc import Iterator
from importlib import import_module

import pytest

from ottla.cli.examples import EXAMPLES, example_of
from ottla.cli.main import COMMANDS, run
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare


def parser_of(words: list[str]) -> Parser:
    """Return the parser that gets a command's words."""
    command = COMMANDS[words[0]]
    is_verb = words[1:2] != [] and words[1] in command.verbs
    parser = Parser(prog=f"ottla {words[0]}")
    declare(parser, import_module(command.verbs_module if is_verb else command.module))
    return parser


def all_parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command, and of each verb."""
    for name, command in COMMANDS.items():
        for module in filter(None, (command.module, command.verbs_module)):
            parser = Parser(prog=f"ottla {name}")
            declare(parser, import_module(module))
            yield from with_verbs(parser)


def with_verbs(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from with_verbs(verb)


def has_verbs(parser: argparse.ArgumentParser) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)


def words_of(line: str) -> list[str]:
    """Return the words after `ottla` in a shell line, without pipes and redirections."""
    ours = line.rpartition("| ")[2].partition(" > ")[0]
    program, *words = shlex.split(ours)
    assert program == "ottla"
    return words


def test_every_subcommand_has_an_example_and_every_example_a_subcommand() -> None:
    assert set(EXAMPLES) == {one.prog for one in all_parsers() if not has_verbs(one)}


@pytest.mark.parametrize("program", EXAMPLES)
def test_an_example_is_understood_by_the_parser_of_its_subcommand(program: str) -> None:
    words = words_of(EXAMPLES[program])
    assert f"ottla {' '.join(words)} ".startswith(f"{program} ")
    parser_of(words).parse_args(words[1:])


def test_help_ends_with_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "trim", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "delete the oldest records" in shown
    assert shown.endswith(f"example:\n  {EXAMPLES['ottla topic trim']}\n")


def test_a_command_shows_the_example_of_its_first_verb() -> None:
    assert example_of("ottla quorum") == EXAMPLES["ottla quorum status"]
    assert example_of("ottla nothing") == ""


def test_every_argument_says_what_it_is() -> None:
    silent = [
        f"{parser.prog} {action.option_strings or action.dest}"
        for parser in all_parsers()
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction)
        and (action.help or "(default").startswith("(default")
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["topic", "create", "t", "-p", "x"], "-p/--partitions: is 'x'; it must be a whole number"),
        (["up", "--port", "x"], "--port: is 'x'; it must be a whole number"),
        (["bench", "produce", "--record-bytes", "x"], "is 'x'; it must be a size such as 16k"),
        (["metrics", "tail", "--metric", "("], "--metric: '(' is no regular expression"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_words(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 1
    assert reason in capsys.readouterr().err
