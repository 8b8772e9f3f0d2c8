"""Each benchmark's parser: its options, the refused ones, and the arguments of the run."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.bench import commands, topics
from ottla.bench.clusters import MEASUREMENTS
from ottla.bench.load import Load
from ottla.bench.result import Result
from ottla.bench.spark import spark_commands
from ottla.cli.lab import bench
from ottla.cli.lab.bench import BENCHES, OPTIONS
from ottla.cli.main import run
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare

ROOT = Path(__file__).parents[3]
PAGES = ("bench/README.md", "docs/faults.md", "docs/testing.md")


@pytest.fixture(autouse=True)
def without_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are made and deleted in no cluster."""

    async def delete(bootstrap: str, names: object) -> dict[str, str]:
        return {}

    monkeypatch.setattr(topics, "make_topic", lambda load: None)
    monkeypatch.setattr(topics, "_delete", delete)
    monkeypatch.setattr(commands, "_check_reached", lambda bootstrap: None)


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="ottla bench")
    declare(parser, bench)
    return parser.parse_args(words)


def command_lines() -> Iterator[list[str]]:
    """Yield the words of each indented `ottla bench` line of the pages."""
    for page in PAGES:
        text = (ROOT / page).read_text().replace("\\\n", " ").replace("$BROKER", "1")
        for line in re.findall(r"^    ottla bench (.*)$", text, re.MULTILINE):
            yield shlex.split(line)


def test_there_is_a_parser_for_everything_that_runs() -> None:
    singly = {*commands.LOADS, *commands.OWN_RUNS, "requests", "commits"}
    assert set(BENCHES) == singly | set(MEASUREMENTS) | set(spark_commands.MEASUREMENTS)


def test_every_option_belongs_to_a_benchmark() -> None:
    used = {name for bench in BENCHES.values() for name in bench.options.split()}
    assert used == set(OPTIONS)


@pytest.mark.parametrize("name", BENCHES)
def test_help_lists_the_options_of_one_benchmark_with_their_defaults(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", name, "--help"]) == 0

    text = capsys.readouterr().out
    listed = set(re.findall(r"^  (--[a-z-]+)", text.replace("-h, ", ""), re.MULTILINE))
    declared = {OPTIONS[option].names[0] for option in BENCHES[name].options.split()}
    assert listed - {"--help"} == declared
    assert "None" not in text


@pytest.mark.parametrize(
    "words",
    [
        ["produce", "--heartbeat-ms", "5"],
        ["rebalance", "--batch-bytes", "16k"],
        ["start", "--bootstrap", "localhost:9092"],
    ],
)
def test_an_option_of_another_benchmark_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *words]) == 1
    assert f"unrecognized arguments: {words[1]}" in capsys.readouterr().err


def test_a_count_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "produce", "--count", "0"]) == 1
    assert "0 is below 1" in capsys.readouterr().err


def test_a_setting_that_cannot_be_read_is_refused_before_a_topic_is_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # No server is there: a topic to be made would be refused first.
    assert run(["bench", "steady", "--bootstrap", "127.0.0.1:1", "--set", "x"]) == 1
    assert "--set: is 'x'; it must be KEY=VALUE" in capsys.readouterr().err


def test_every_command_line_of_the_pages_is_understood() -> None:
    lines = list(command_lines())
    assert len(lines) >= 12
    for words in lines:
        assert parsed(*words).verb == words[0]


def test_a_line_with_sizes_and_short_names_keeps_its_meaning() -> None:
    found = parsed("produce", "-c", "5", "--bootstrap", "a:1", "--batch-bytes", "16k", "--pid=7")
    assert (found.count, found.bootstrap_server) == (5, "a:1")
    assert (found.batch_bytes, found.pid) == (16_384, [7])


@pytest.mark.parametrize(
    ("name", "count"),
    [("produce", 1_000_000), ("consume", 1_000_000), ("e2e", 1_000)],
)
def test_a_load_has_the_defaults_of_its_benchmark(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Load] = []

    def load(given: Load, progress: Any) -> Result:
        seen.append(given)
        return Result(name, given.count, 0, 1.0)

    monkeypatch.setitem(commands.LOADS, name, load)

    assert run(["bench", name, "--topic=t"]) == 0
    assert seen == [Load(bootstrap="localhost:9092", topic="t", count=count)]


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("requests", "run_requests", {"count": 100_000, "connections": 10, "kind": "produce"}),
        ("commits", "run_commits", {"count": 100_000, "connections": 100, "has_members": False}),
        ("clients", "run_clients", {"count": 200_000, "rounds": 5}),
        ("rebalance", "run_rebalances", {"members": 100, "heartbeat_s": 0.1, "rounds": 5}),
        ("scrape", "run_scrapes", {"rounds": 5}),
        ("authorizer", "run_decisions", {"count": 10_000, "rounds": 5}),
        ("telemetry", "run_telemetry", {"clients": 1_000, "seconds": 60.0, "pids": []}),
    ],
)
def test_a_benchmark_runs_with_its_own_defaults(
    name: str, function: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def body(*_: Any, **given: Any) -> Any:
        seen.append(given)
        result = Result(name, 1, 0, 1.0, notes={"lost": 0, "codes": {}})
        return result if name in ("requests", "commits", "telemetry") else {"what": name}

    monkeypatch.setattr(commands, function, body)

    assert run(["bench", name, "--format=json"]) == 0
    assert expected.items() <= seen[0].items()


def test_a_producer_beside_telemetry_is_asked_for_by_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, Any]] = []

    def beside(*_: Any, **given: Any) -> dict[str, Any]:
        seen.append(given)
        return {"lost": 1, "codes": {}}

    monkeypatch.setattr(commands, "run_beside", beside)

    assert run(["bench", "telemetry", "--produce-rate", "200", "--seconds", "8"]) == 2
    assert (seen[0]["rate"], seen[0]["seconds"]) == (200, 8.0)


def test_a_clusters_benchmark_runs_its_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def start(rounds: int, _: Any) -> dict[str, Any]:
        seen.append(rounds)
        return {"ready_s": 1}

    monkeypatch.setitem(MEASUREMENTS, "start", start)

    assert run(["bench", "start", "--rounds", "2"]) == 0
    assert seen == [2]
