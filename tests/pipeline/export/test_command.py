"""`ottla export` as its user types it, and the commands of docs/export.md."""

import builtins
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.main import run

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import TopicBench

PAGE = Path(__file__).parents[3] / "docs" / "export.md"
TIMEOUT_S = 120


def test_the_page_opens_with_commands_that_work(bench: "TopicBench", tmp_path: Path) -> None:
    commands = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("ottla", "-m ottla.cli"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OTTLA_BOOTSTRAP": bench.bootstrap,
    }
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "1000 records written to orders\n")
    assert "1,000 rows in 1 file added to orders-table" in done.stdout
    assert "1,000 rows in 1 file added to iceberg:local.orders" in done.stdout
    assert re.search(r"^ +1000 +501,?000\.0$", done.stdout, re.MULTILINE)
    assert re.search(r"1000 │\s+501000.0", done.stdout)


def test_the_summary_is_json_and_refusals_are_one_sentence(
    bench: "TopicBench", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = bench.new_topic()
    bench.produce(topic, [b'{"id":"1"}', b'{"id":"2"}'])
    words = ["export", topic, "--to", str(tmp_path / "table"), "--bootstrap", bench.bootstrap]
    assert run([*words, "--json", "--schema", "id STRING", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("seconds") > 0
    assert found == {
        "topic": topic,
        "to": str(tmp_path / "table"),
        "row_count": 2,
        "file_count": 1,
        "behind_count": 0,
        "bad_value_count": 0,
        "next_offsets": {"0": 2},
    }
    assert run(words) == 1
    assert "has values as JSON; export as before, or elsewhere" in capsys.readouterr().err
    bench.delete_records(topic, 0, 2)
    bench.produce(topic, [b"3"] * 2)
    bench.delete_records(topic, 0, 3)
    assert run([*words, "--json"]) == 1
    assert "from offset 2, where the table ends, to 2" in capsys.readouterr().err


def test_values_that_do_not_fit_the_schema_are_counted(
    bench: "TopicBench", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = bench.new_topic()
    bench.produce(topic, [b'{"id":1}', b'{"id":1.5}', b"no JSON", None])
    words = ["export", topic, "--to", str(tmp_path / "table"), "--bootstrap", bench.bootstrap]

    assert run([*words, "--json", "--schema", "id BIGINT"]) == 0

    shown = capsys.readouterr()
    assert "4 rows in 1 file added" in shown.out
    assert "warning: 2 values do not fit the columns of the table; see its column bad_value" in (
        shown.err
    )
    bench.produce(topic, [b'{"id":"x"}'])
    assert run([*words, "--json", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["bad_value_count"] == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--schema", "id INT"], "--schema: needs --json"),
        (["--json", "--schema", "id INTT"], "is it INT"),
        (["--file-size", "big"], "--file-size: is 'big'"),
        (["--commit-interval", "soon"], "--commit-interval: is 'soon'"),
        (["--catalog-option", "uri=x"], "--catalog-option: needs --to iceberg:"),
        (
            ["--to", "s3://bucket/orders"],
            "--to: is 's3://bucket/orders'; it must be a directory of",
        ),
        (["--to", "file:///srv/orders"], "it must be a directory of this machine"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", "orders", "--to", str(tmp_path), *words]) == 1
    assert sentence in capsys.readouterr().err


def test_a_missing_package_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **settings: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name=name)
        return real(name, *arguments, **settings)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(["export", "orders", "--to", str(tmp_path)]) == 1
    assert "pyarrow: is not installed; install it with: pip install" in capsys.readouterr().err
