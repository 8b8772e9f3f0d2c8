"""The question before a change: `--dry-run`, `--yes`, and a person at a terminal."""

import io
import sys
from argparse import ArgumentError, ArgumentParser, Namespace

import pytest

from ottla.cli.confirmation import CONFIRMATION, confirm, confirm_in_loop, is_refused


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
        ((), False, "nothing was changed; --yes does it\n"),
        (("--dry-run",), False, "nothing was changed (--dry-run)\n"),
        (("--yes",), True, ""),
        (("--execute",), True, ""),
    ],
)
async def test_without_a_terminal_only_yes_changes_anything(
    words: tuple[str, ...], is_made: bool, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = parsed(*words)
    assert is_refused(arguments) is not is_made
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


def test_both_options_at_once_are_refused() -> None:
    with pytest.raises((SystemExit, ArgumentError)):
        parsed("--yes", "--dry-run")
