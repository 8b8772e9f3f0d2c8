"""Scripts that complete `ottla` in bash, zsh and fish, generated from the parsers by `make docs`.

A script is static. Its table has the verbs, options and kinds of values of each command. One
function looks up a command line in this table.  Only the names of topics, groups and profiles are
requested at run time, from `ottla completion names`.  The scripts are in `completions/`, so that
`ottla completion bash` prints one without importing a command.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import ottla.cli.main
from ottla.cli.main import COMMANDS
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare

FILE, DIRECTORY, TOPIC, GROUP, PROFILE = "@file", "@dir", "@topics", "@groups", "@profiles"
FREE = ""
"""Kind of an option's value that the shell does not complete, such as a number."""

KINDS_OF_METAVARS = {
    "FILE": FILE,
    "CONFIG": FILE,
    "DIR": DIRECTORY,
    "TOPIC": TOPIC,
    "TOPIC:PARTITION": TOPIC,
    "TOPIC[:PARTITION]": TOPIC,
    "GROUP": GROUP,
}
KINDS_OF_OPTIONS = {"dir": DIRECTORY, "topic": TOPIC, "group": GROUP, "profile": PROFILE}
HELP = "help"
COMPLETIONS = Path(ottla.cli.main.__file__).parent / "completions"
"""Folder of the generated scripts, in the package `ottla.cli`."""


@dataclass(slots=True)
class CompletionRow:
    """The words that may follow one command or verb on the command line."""

    verbs: dict[str, str] = field(default_factory=dict)
    """Verbs that may follow, each with its one-line summary."""

    options: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    """Kind of each option's value: `@` and the kind of a name, or the choices separated by bars."""

    argument: str = FREE
    """Kind of values that the positional arguments accept."""


def completion_table() -> dict[str, CompletionRow]:
    """Return the completion rows of all commands. Each key is the sequence of words after `ottla`
    that the row completes."""
    summaries = {name: command.summary for name, command in COMMANDS.items()}
    table = {"": CompletionRow({**summaries, HELP: "show the help of a command"})}
    table[HELP] = CompletionRow(dict(summaries))
    for name, command in COMMANDS.items():
        for module in filter(None, (command.module, command.verbs_module)):
            parser = Parser(prog=f"ottla {name}")
            declare(parser, import_module(module))
            for path, row in _rows(name, parser):
                known = table.setdefault(path, row)
                if known is not row:
                    known.verbs.update(row.verbs)
    return table


def _rows(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, CompletionRow]]:
    row = CompletionRow()
    yield path, row
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            row.verbs = {one.dest: one.help or "" for one in action._choices_actions}
            for name, verb in action.choices.items():
                yield from _rows(f"{path} {name}", verb)
        elif action.option_strings:
            row.options += action.option_strings
            if action.nargs != 0:
                row.values.update(dict.fromkeys(action.option_strings, _kind(path, action)))
        else:
            row.argument = row.argument or _kind(path, action)


def _kind(path: str, action: argparse.Action) -> str:
    """Return the kind of value that an argparse action expects."""
    if action.choices:
        return "|".join(map(str, action.choices))
    if action.metavar == "NAME" and path.startswith("topic ") and path != "topic create":
        return TOPIC
    kind = KINDS_OF_METAVARS.get(str(action.metavar), FREE)
    return kind or (KINDS_OF_OPTIONS.get(action.dest, FREE) if action.option_strings else FREE)


def bash_script() -> str:
    """Return the completion script for bash."""
    rows = [
        f"    {_quoted(path)})\n      verbs={_joined(row.verbs)}\n"
        f"      options={_joined(row.options)}\n      values={_joined(_pairs(row))}\n"
        f"      argument={_quoted(row.argument)} ;;\n"
        for path, row in completion_table().items()
    ]
    return _filled("bash", "".join(rows))


def zsh_script() -> str:
    """Return the completion script for zsh. It also shows the summaries of verbs."""
    rows = [
        f"    {_quoted(path)})\n      ottla_verbs=({_listed(_described(row))})\n"
        f"      ottla_options=({_listed(row.options)})\n"
        f"      ottla_values=({_listed(_pairs(row))})\n"
        f"      ottla_argument={_quoted(row.argument)} ;;\n"
        for path, row in completion_table().items()
    ]
    return _filled("zsh", "".join(rows))


def fish_script() -> str:
    """Return the completion script for fish."""
    rows = [
        f"        case {_quoted(path)}\n"
        f"            set -g __ottla_verbs {_listed(row.verbs)}\n"
        f"            set -g __ottla_summaries {_listed(row.verbs.values())}\n"
        f"            set -g __ottla_options {_listed(row.options)}\n"
        f"            set -g __ottla_values {_listed(_pairs(row))}\n"
        f"            set -g __ottla_argument {_quoted(row.argument)}\n"
        for path, row in completion_table().items()
    ]
    return _filled("fish", "".join(line.rstrip() + "\n" for line in "".join(rows).splitlines()))


def scripts() -> dict[str, str]:
    """Return the completion script of each shell, by the script's file name."""
    return {"ottla.bash": bash_script(), "ottla.zsh": zsh_script(), "ottla.fish": fish_script()}


def _filled(shell: str, rows: str) -> str:
    frame = Path(__file__).with_name(f"completion_frame.{shell}").read_text()
    return frame.replace("@ROWS@\n", rows)


def _pairs(row: CompletionRow) -> Iterator[str]:
    return (f"{option}={kind}" for option, kind in row.values.items())


def _described(row: CompletionRow) -> Iterator[str]:
    return (f"{name}:{summary}" for name, summary in row.verbs.items())


def _quoted(text: str) -> str:
    """Return a text in single quotes, which have the same meaning in all three shells."""
    assert "\\" not in text and "\n" not in text
    return "'" + text.replace("'", "’") + "'"


def _joined(words: Iterable[str]) -> str:
    return _quoted(" ".join(words))


def _listed(words: Iterable[str]) -> str:
    return " ".join(map(_quoted, words))
