"""The question before a change: `--dry-run`, `--yes`, a person at a terminal, and the commands that
ask."""

import io
import sys
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from ottla.cli.confirmation import (
    CONFIRMATION,
    YES,
    UnconfirmedError,
    confirm,
    confirm_in_loop,
)
from ottla.cli.main import COMMANDS, UNCONFIRMED, guarded, run
from ottla.cli.options import OneOf, Option
from ottla.cli.verbs import Verb

ASKING = frozenset(
    (
        "acl delete",
        "broker drain",
        "broker remove",
        "broker unregister",
        "cluster balance",
        "cluster features downgrade",
        "cluster features upgrade",
        "cluster upgrade finalize",
        "config set",
        "group delete",
        "share delete",
        "share offset-delete",
        "share redrive",
        "share reset",
        "group offset-delete",
        "group remove-member",
        "group reset",
        "log recover",
        "quorum add",
        "quorum remove",
        "quorum replace",
        "quorum unregister",
        "storage accept-loss",
        "tier restore",
        "token end",
        "topic alter",
        "topic delete",
        "topic elect",
        "topic reassign",
        "topic trim",
        "txn abort",
        "user delete",
    )
)
"""Commands that ask.  `config set` and `topic alter` ask only before changes that delete or risk
records, `topic elect` only before an unclean election."""

WORDS_OF_LOSS = frozenset(
    ("abort", "delete", "drain", "end", "remove", "reset", "trim", "unregister")
)
"""Last words of commands that must ask."""

RESTORABLE = frozenset(("metrics subscriptions delete", "quota delete"))
"""Commands with such a word that delete only settings, which can be set again."""


def leaves(path: str, verbs: tuple[Verb, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for one in verbs:
        name = f"{path} {one.name}"
        yield from leaves(name, one.verbs) if one.verbs else [(name, one.options)]


def all_commands() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield each command with its declared options."""
    for name, command in COMMANDS.items():
        for path in filter(None, (command.module, command.verbs_module)):
            module = import_module(path)
            verbs: tuple[Verb, ...] | None = getattr(module, "VERBS", None)
            yield from [(name, module.OPTIONS)] if verbs is None else leaves(name, verbs)


def names_in(options: tuple[Any, ...]) -> set[str]:
    found = set()
    for declared in options:
        parts = (declared,) if isinstance(declared, Option) else declared.options
        found |= {name for part in parts for name in part.names}
    return found


def parsed(*words: str) -> Namespace:
    parser = ArgumentParser(exit_on_error=False)
    CONFIRMATION.add_to(parser)
    return parser.parse_args(words)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "is_made", "note"),
    [
        (("--dry-run",), False, "nothing was changed (--dry-run)\n"),
        (("--yes",), True, ""),
        (("--execute",), True, ""),
    ],
)
async def test_options_answer_the_question(
    words: tuple[str, ...], is_made: bool, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = parsed(*words)
    assert confirm(arguments, "do it?") is is_made
    assert await confirm_in_loop(arguments, "do it?") is is_made
    assert capsys.readouterr().err == note * 2


@pytest.mark.parametrize(
    ("said", "is_made"),
    [("y\n", True), ("YES\n", True), ("\n", False), ("no\n", False), ("", False)],
)
async def test_a_person_is_asked(said: str, is_made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    for words in ((), ("--yes",), ("--dry-run",)):
        monkeypatch.setattr(sys, "stdin", Terminal(said))
        found = await confirm_in_loop(parsed(*words), "do it?")
        assert found is (is_made if not words else words == ("--yes",))
        assert sys.stdin.read() == (said if words else ""), "only the first one asks"
    assert shown.getvalue().count("do it? [y/N]\n") == 1


async def test_without_a_terminal_an_unanswered_question_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UnconfirmedError):
        await confirm_in_loop(parsed(), "do it?")

    assert guarded("topic", lambda arguments: int(confirm(arguments, "?")), parsed()) == 2
    said = "ottla topic: nothing was changed, since no terminal can confirm it; add --yes\n"
    assert capsys.readouterr().err == said


def test_the_commands_that_ask_take_yes_and_others_do_not() -> None:
    found = dict(all_commands())
    assert {name for name, options in found.items() if "--yes" in names_in(options)} == ASKING
    for name in found:
        is_loss = name.split()[-1] in WORDS_OF_LOSS
        assert not is_loss or name in ASKING | RESTORABLE, f"{name} must ask"


def test_yes_is_declared_once() -> None:
    for name, options in all_commands():
        if name in ASKING - {"config set", "topic alter"}:
            assert CONFIRMATION in options or YES in options, name
        assert sum("--yes" in names_in((one,)) for one in options) <= 1
    assert isinstance(CONFIRMATION, OneOf)


@pytest.fixture(scope="module")
def cluster(up_for_all: Callable[..., Any]) -> Any:
    """One controller and two brokers, which every command leaves as they were."""
    cluster = up_for_all("--controllers=1", "--brokers=2", "--port=0")
    create = ["topic", "create", "kept", "-p", "1", "-r", "1"]
    assert run([*create, "--dir", str(cluster.directory)]) == 0
    return cluster


@pytest.mark.cluster
@pytest.mark.parametrize(
    "command",
    [
        "topic delete kept",
        "topic alter kept -c retention.ms=1",
        "topic alter kept -c retention.ms=1 -c cleanup.policy=compact",
        "topic reassign kept --brokers 1,2 --replicas 2",
        "config set --topic kept unclean.leader.election.enable=true",
        "config set --cluster log.retention.ms=1",
        "group delete readers",
        "broker drain 1 --force",
        "broker unregister 2 --force",
        "cluster features downgrade group.version=0",
    ],
)
def test_a_command_that_is_not_confirmed_changes_nothing(
    command: str, cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> str:
        capsys.readouterr()
        for shown in ("topic describe kept", "config get --topic kept", "config get --cluster"):
            assert run([*shown.split(), "--dir", str(cluster.directory)]) == 0
        return capsys.readouterr().out

    before = state()
    assert run([*command.split(), "--dir", str(cluster.directory)]) == UNCONFIRMED
    assert "nothing was changed" in capsys.readouterr().err
    assert state() == before


@pytest.mark.cluster
def test_a_harmless_change_is_not_asked_about(cluster: Any) -> None:
    where = ["--dir", str(cluster.directory)]
    assert run(["config", "set", "--topic", "kept", "retention.ms=-1", *where]) == 0
    assert run(["topic", "alter", "kept", "--unset", "retention.ms", "--yes", *where]) == 0


def test_both_options_at_once_are_refused() -> None:
    with pytest.raises((SystemExit, ArgumentError)):
        parsed("--yes", "--dry-run")
