"""Generator of docs/reference/cli.md from the argument parsers of all commands."""

import argparse
from collections.abc import Iterator
from importlib import import_module

from ottla.cli.common import CONNECTION as CONNECTION_OPTIONS
from ottla.cli.examples import EXAMPLES
from ottla.cli.main import COMMANDS
from ottla.cli.options import declare_options
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare
from ottla.tools.markdown import NOTICE, code, table

CLI_INTRODUCTION = """\
# The `ottla` command

Exit codes: 0 ok, 1 usage or refused, 2 unhealthy, invalid or unconfirmed, 3 unreachable, 4 unknown,
130 ended by Ctrl-C.

A command asks once before it deletes records, offsets, groups, credentials or ACLs, takes a node, a
replica or a vote away, or does what cannot be undone. `--yes` answers beforehand, and `--dry-run`
shows the changes. Without a terminal and without `--yes` it changes nothing, and exits with code 2.

`ottla COMMAND --help` and `ottla help COMMAND` show a command with an example. Output has colours
on a terminal only; `NO_COLOR=1` turns them off, `FORCE_COLOR=1` on.

Tables are for people: bytes and durations have a unit, times are UTC. A table has at most 120
columns, or as many as the terminal or the variable `COLUMNS` says; cells that are longer than their
column continue on the next line. Programs read `--format json`, which has plain numbers.

## Completion

`eval "$(ottla completion bash)"` in `~/.bashrc`, `eval "$(ottla completion zsh)"` in `~/.zshrc`
after `compinit`, or `ottla completion fish | source` in fish: commands, options and their choices
are completed, and names of topics, groups and profiles. Names are requested from the cluster that
the command line selects, for 1.5 s at most.

## Options of the connection

Commands that connect to a cluster have these:
"""
CLI_PROFILES = """\
The address is the first given of: `--bootstrap-server` or `--dir`, the profile of `--profile`,
`OTTLA_BOOTSTRAP`, the profile of `OTTLA_PROFILE`, the cluster of `ottla-data`, `localhost:9092`.
The login is that of `--command-config`, else of the profile.

### Profiles

`~/.config/ottla/config.toml` (in `$XDG_CONFIG_HOME` if that is set) names clusters:

```toml
[profiles.test]
bootstrap = "localhost:9092"

[profiles.prod]
bootstrap = "broker-1:9092,broker-2:9092"
security.protocol = "SASL_PLAINTEXT"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "alice"
sasl.password = "…"
```

A profile has the keys of `--command-config`, or names such a file with `command-config = "FILE"`,
relative to the folder of config.toml. If every user of the machine can read a file with a
password, a warning says so: `chmod 600` it.
"""
CONNECTION = {"bootstrap_server", "dir", "profile", "command_config"}
"""Options shared by all commands that connect to a cluster."""


def cli_page() -> str:
    """Return the text of docs/reference/cli.md."""
    connection = argparse.ArgumentParser(add_help=False)
    declare_options(connection, CONNECTION_OPTIONS)
    rows = [(_spelling(action), _meaning(action, connection)) for action in connection._actions]
    text = f"{NOTICE}{CLI_INTRODUCTION}\n{table(('argument', 'meaning'), rows)}\n{CLI_PROFILES}"
    for name, command in COMMANDS.items():
        text += f"\n## `ottla {name}`\n\n{command.summary}\n"
        text += _example_section(f"ottla {name}")
        for module_name in filter(None, (command.module, command.verbs_module)):
            parser = Parser(prog=f"ottla {name}")
            declare(parser, import_module(module_name))
            text += "".join(_parser_sections(parser))
    return text


def _parser_sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    # argparse has no public list of the declared arguments.
    actions = parser._actions
    has_connection = {action.dest for action in actions} >= CONNECTION
    hidden = {"help", *CONNECTION} if has_connection else {"help"}
    rows = [
        (_spelling(action), _meaning(action, parser))
        for action in actions
        if action.dest not in hidden and not isinstance(action, argparse._SubParsersAction)
    ]
    if rows:
        yield f"\n{table(('argument', 'meaning'), rows)}"
    if has_connection:
        yield "\nAlso the [options of the connection](#options-of-the-connection).\n"
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            for name, verb in action.choices.items():
                yield f"\n### `{verb.prog}`\n\n{helps.get(name, '')}\n"
                yield _example_section(verb.prog)
                yield from _parser_sections(verb)


def _example_section(program: str) -> str:
    example = EXAMPLES.get(program, "")
    return f"\n    {example}\n" if example else ""


def _spelling(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return code(names)
    if action.choices and action.metavar is None:
        return code(f"{names} {{{','.join(map(str, action.choices))}}}".strip())
    value = action.metavar or action.dest.upper()
    return code(f"{names} {value if isinstance(value, str) else ' '.join(value)}".strip())


def _meaning(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    is_plain = isinstance(action.default, str | int | float) and not isinstance(
        action.default, bool
    )
    if is_plain and "default" not in text and action.default != argparse.SUPPRESS:
        text += f" (default: {action.default})"
    return text.strip()
