"""A misspelt word is answered with the nearest known word; help is found in every order."""

import subprocess
import sys

import pytest

from ottla.cli.main import run


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("topci list", "topic"),
        ("topic creat x", "create"),
        ("topic create x --partitons=3", "--partitions"),
        ("broker cordn 1", "cordon"),
    ],
)
def test_the_nearest_word_is_suggested(
    line: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 1

    assert f"(did you mean '{meant}'?); see " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("topic alter x --brokers 1", "ottla topic alter: unrecognized arguments: --brokers 1; "),
        (
            "topic alter x --partitions 6",
            "('ottla topic add-partitions' adds partitions",
        ),
        ("consume x --from-beginning", "(records are read from the beginning, unless --offset end"),
        ("consume -t x", "(the topic is given without an option)"),
        ("config show", "there is no verb 'show'; the verbs are "),
        ("broker restart 1", "'restart' is no file, and no verb; they are list, describe, "),
    ],
)
def test_a_usage_error_leads_to_the_right_command(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 1

    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("line", ["xyzzy", "quota apply --produce x", "topic list --brokers 1"])
def test_a_word_like_no_other_gets_no_suggestion(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 1

    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("words", ["help topic create", "-h topic create", "topic create -h"])
def test_help_is_found_in_every_order(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 0

    assert capsys.readouterr().out.startswith("usage: ottla topic create")


def test_a_reader_that_went_away_is_no_error() -> None:
    command = [sys.executable, "-m", "ottla.cli", "help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
