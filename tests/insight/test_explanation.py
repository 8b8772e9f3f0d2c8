"""Explanations: their verdict, their JSON form, and commands with hostile names."""

import json
import shlex
import shutil
import subprocess

import pytest

from ottla.insight.explanation import Cause, Conclusion, Evidence, NameArgument, command, concluded
from ottla.model.visible_text import visible
from tests.insight.rules.test_totality import parse


def test_missing_facts_without_a_cause_make_the_verdict_unknown() -> None:
    cause = Cause(kind="k", summary="it is so")
    assert concluded("lag", "group g", []).verdict is Conclusion.CLEAR
    assert concluded("lag", "group g", [], unknown=["x"]).verdict is Conclusion.UNKNOWN
    assert concluded("lag", "group g", [cause], unknown=["x"]).verdict is Conclusion.CAUSED


def test_the_json_form_has_evidence_by_label_and_no_empty_command() -> None:
    cause = Cause(kind="k", summary="it is so", evidence=(Evidence("lag in records", 7),))
    found = json.loads(json.dumps(concluded("lag", "group g", [cause]).as_json))
    assert found["verdict"] == "caused"
    (shown,) = found["causes"]
    assert shown["evidence"] == {"lag in records": 7}
    assert shown["fix"] is None


def test_a_hostile_name_stays_one_word_of_a_command() -> None:
    name = "orders; rm -rf / 'x' $(y)"
    assert shlex.split(command("topic", "describe", name)) == ["ottla", "topic", "describe", name]


def test_a_name_that_begins_with_a_dash_is_no_option() -> None:
    group, topic = NameArgument("--yes"), NameArgument("-t")
    assert command("group", "describe", group) == "ottla group describe -- --yes"
    assert command("consume", topic, "--group", group, "-c", 1) == (
        "ottla consume --group=--yes -c 1 -- -t"
    )
    assert (
        command("consume", NameArgument("t"), "--share", NameArgument("g"))
        == "ottla consume t --share g"
    )
    assert command("consume", NameArgument("a"), topic, "--share", NameArgument("g")) == (
        "ottla consume --share g -- a -t"
    )
    found = parse(command("group", "reset", group, "--topic", topic, "--to-offset", 3))
    assert (found.group, found.topic, found.yes) == ("--yes", ["-t"], False)


@pytest.mark.parametrize(
    "name", ["x\x1b[2J\\'q\n", "\x07\u202eabc$(id)`id`", "a;b", "ä'", "\x9bm0 ff", "-\x1b"]
)
def test_a_shell_reads_a_hostile_name_back_and_a_terminal_sees_no_escape(name: str) -> None:
    line = command("consume", "t", "--group", NameArgument(name))
    assert line.isprintable()
    assert visible(line) == line
    script = line.replace("ottla consume t", "printf '%s\\n'", 1)
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    done = subprocess.run([bash, "-c", script], capture_output=True, check=True)
    words = [b"--group=" + name.encode()] if name[0] == "-" else [b"--group", name.encode()]
    assert done.stdout == b"".join(one + b"\n" for one in words)
