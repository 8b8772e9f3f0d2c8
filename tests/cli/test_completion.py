"""Completion in real shells: the words that they offer for an unfinished line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from ottla.cli.main import COMMANDS, run
from ottla.client import open_admin
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.tools.completion_scripts import COMPLETIONS, scripts

__all__ = ["ottla_cluster"]

BASH = """
source {script}
COMP_LINE={line}
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_ottla 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
function compdef {{ }}
function compset {{ }}
function compadd {{ shift; print -rl -- "$@" }}
function _describe {{ print -rl -- ${{${{(P)2}}%%:*}} }}
function _files {{ print FILES }}
BUFFER={line}
source {script}
words=({words})
CURRENT=$#words
_ottla
"""
FISH = """
source {script}
complete -C {line}
"""
FRAMES = {"bash": BASH, "zsh": ZSH, "fish": FISH}

Complete = Callable[..., set[str]]


@pytest.fixture(params=FRAMES)
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """Return the completions that a shell offers for a line, with `ottla` on its path."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    program = tmp_path / "bin/ottla"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def offered(line: str) -> set[str]:
        words = " ".join(json.dumps(word) for word in line.split(" "))
        script = FRAMES[shell].format(
            script=COMPLETIONS / f"ottla.{shell}", line=json.dumps(line), words=words
        )
        done = subprocess.run(
            [shell, "-c", script],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=environment,
            cwd=tmp_path,
        )
        assert done.stderr == ""
        current = line.rpartition(" ")[2]
        found = {text.partition("\t")[0] for text in done.stdout.splitlines() if text}
        # zsh itself leaves out what does not begin as the word does.
        return {one for one in found if one.startswith(current)} if shell == "zsh" else found

    return offered


def test_the_scripts_are_those_of_the_parsers() -> None:
    for name, text in scripts().items():
        assert (COMPLETIONS / name).read_text() == text, "run 'make docs'"


@pytest.mark.parametrize("shell", FRAMES)
def test_a_script_is_printed_as_it_is(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert capsys.readouterr().out == (COMPLETIONS / f"ottla.{shell}").read_text()


def test_nothing_of_another_command_is_imported() -> None:
    code = (
        "import sys; from ottla.cli.main import run; run(['completion', 'bash']); "
        "sys.exit(any(name in sys.modules for name in ('trio', 'ottla.client', 'ottla.bench')))"
    )
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)


def test_commands_and_verbs_are_offered(complete: Complete) -> None:
    assert complete("ottla ") == {*COMMANDS, "help"}
    assert complete("ottla topic de") == {"describe", "delete"}
    assert complete("ottla metrics subscriptions ") == {"list", "set", "delete"}
    assert complete("ottla help qu") == {"quota", "quorum"}
    assert complete("ottla help topic cr") == {"create"}


def test_options_of_the_verb_are_offered(complete: Complete) -> None:
    assert complete("ottla topic create --part") == {"--partitions"}
    assert complete("ottla topic create greetings --if") == {"--if-not-exists"}
    assert complete("ottla status --w") == {"--watch"}


def test_the_value_of_an_option_is_one_of_its_choices(complete: Complete) -> None:
    assert complete("ottla topic list --format ") == {"table", "json"}
    assert complete("ottla produce greetings -z sn") == {"snappy"}
    # A verb that is the value of an option is none.
    assert complete("ottla topic create --config delete --part") == {"--partitions"}


def test_profiles_are_offered(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "ottla").mkdir()
    (tmp_path / "ottla/config.toml").write_text("[profiles.prod]\n[profiles.test]\n")
    assert complete("ottla status --profile ") == {"prod", "test"}


async def test_topics_of_the_cluster_that_the_line_names_are_offered(
    complete: Complete, ottla_cluster: ClusterUnderTest
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        for name in ("orders", "others", "payments"):
            await admin.create_topic(name, partition_count=1)

    line = f"ottla consume --bootstrap {ottla_cluster.bootstrap} o"
    assert await trio.to_thread.run_sync(complete, line) == {"orders", "others"}


def test_a_cluster_that_is_not_reached_has_no_names(
    complete: Complete, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete("ottla consume --bootstrap localhost:1 ") == set()
    assert run(["completion", "names", "topics", "--line", "ottla consume --bootstrap 'loc"]) == 0
    assert capsys.readouterr().err == ""
