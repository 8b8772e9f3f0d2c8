"""A run's directory gets pages that are complete offline, with the facts of its files."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ottla.jepsen.history import EventKind, History, Json
from ottla.jepsen.report import figures
from ottla.jepsen.report.write import write_matrix, write_report
from ottla.model.install_hint import install_hint

PICTURES = ("latency-raw", "latency-quantiles", "rate", "unseen")
Make = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path, queue_history: History, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return the function that writes a run's files into a store."""

    def make(
        name: str = "queue-kill/20260101T120000",
        findings: Any = (),
        valid: Json = True,
        has_pictures: bool = False,
        **test: Json,
    ) -> Path:
        monkeypatch.setattr(figures, "find_spec", lambda name: name if has_pictures else None)
        directory = tmp_path / name
        directory.mkdir(parents=True)
        (directory / "history.jsonl").write_text("".join(queue_history.to_lines()))
        facts = {"workload": "queue", "nemesis": ["kill"], "started": name[-15:], **test}
        (directory / "test.json").write_text(json.dumps(facts))
        verdict = {
            "checker": "log",
            "valid": valid,
            "reason": None if valid is True else "lost-write × 9",
            "findings_count": {"lost-write": 9} if findings else {},
            "findings": findings,
            "figures": {"keys": 8, "unseen_over_time": [[1.0, 4.0], [2.0, 0.0]]},
        }
        results = {
            "valid": valid,
            "reason": None if valid is True else "log: lost-write × 9",
            "verdicts": [verdict],
            "figures": {
                "operations": 2_000,
                "ops_per_s": 811.4,
                "faults": 5,
                "recovery_p99_s": 2.5,
            },
            "command": "ottla jepsen run --seed 7 && echo <done>",
        }
        (directory / "results.json").write_text(json.dumps(results))
        (directory / "nodes").mkdir()
        (directory / "nodes" / "b1.log").write_text("started")
        return directory

    return make


def tree_of(path: Path) -> ElementTree.Element:
    """Parse a page or a picture: it is well-formed, or this raises."""
    return ElementTree.fromstring(path.read_text().removeprefix("<!DOCTYPE html>\n"))


def text_of(path: Path) -> str:
    return " ".join("".join(tree_of(path).itertext()).split())


def test_a_valid_run_has_every_page_and_picture_each_complete_in_itself(make_run: Make) -> None:
    directory = make_run(has_pictures=True)
    index = write_report(directory)
    for path in [index, directory / "timeline.html", *(directory / f"{p}.svg" for p in PICTURES)]:
        tree_of(path)
        text = path.read_text()
        assert len(text) < 2_000_000
        for outside in re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(([^)]*)\)|(@import)", text):
            assert not re.match(r"(https?:)?//|data:", "".join(outside)), outside
    text = text_of(index)
    assert "Valid: 1 checker found nothing wrong in" in text
    assert "under 5 faults" in text
    assert "ottla jepsen run --seed 7 && echo <done>" in text
    assert index.read_text().count("<svg") == len(PICTURES)
    for link in re.findall(r'href="([^"#]+)', index.read_text()):
        assert (directory / link).exists() or link.endswith("../index.html"), link
    assert not list(directory.rglob("*.new")), "nothing unfinished is left"


def test_without_matplotlib_a_page_has_its_tables_and_names_what_to_install(
    make_run: Make,
) -> None:
    directory = make_run()
    index = write_report(directory)
    assert install_hint("reports") in text_of(index)
    assert figures.RECOVERY_COUNTS in text_of(index)
    assert "Valid: 1 checker" in text_of(index)
    assert "<svg" not in index.read_text()
    assert not list(directory.glob("*.svg"))


def test_a_finding_has_the_operations_that_prove_it_and_the_log_of_its_key(
    make_run: Make, queue_history: History
) -> None:
    proof = next(o for o in queue_history.operations("send") if o.kind is EventKind.OK)
    finding = {
        "anomaly": "lost-write",
        "detail": "17 <is> lost",
        "operations": [0, proof.index],
        "key": proof.value[0][1],
    }
    directory = make_run(valid=False, planted="forgets", findings=[finding])
    index = write_report(directory, queue_history)
    text = text_of(index)
    assert "Invalid: log: lost-write × 9, in" in text
    assert "The planted bug, forgets, was found." in text
    assert "lost-write × 9 log, the first 1 listed" in text
    assert "17 <is> lost" in text
    assert f"The log of {finding['key']} around 1 offset of findings" in text
    proofs = re.findall(r"timeline\.html#e(\d+)", index.read_text())
    timeline = (directory / "timeline.html").read_text()
    assert {"0", str(proof.invoke.index)} <= set(proofs)
    for index_of_event in proofs:
        assert f'id="e{index_of_event}"' in timeline


def test_a_register_without_an_order_is_explained_under_its_name(make_run: Make) -> None:
    directory = make_run(valid=False)
    results = json.loads((directory / "results.json").read_text())
    call = {"process": 0, "f": "fetch", "value": 5, "begin": 0, "end": 1}
    search = {"operations": [call], "order": [], "states": [], "stuck": [0]}
    results["verdicts"][0]["figures"]["linear"] = {"g/q<0>": search}
    (directory / "results.json").write_text(json.dumps(results))
    assert "No order fits g/q<0>" in text_of(write_report(directory))


def test_a_run_without_any_results_is_unknown_and_not_a_pass(tmp_path: Path) -> None:
    text = text_of(write_report(tmp_path))
    assert "Unknown, which is not a pass: there is no verdict" in text
    assert "No checker has a verdict yet." in text


def test_a_history_that_was_cut_off_is_used_as_far_as_it_goes(make_run: Make) -> None:
    directory = make_run()
    path = directory / "history.jsonl"
    path.write_text(path.read_text()[:-30])
    assert "operations" in text_of(write_report(directory))


def test_values_of_a_history_never_become_markup(make_run: Make) -> None:
    directory = make_run(valid=False, has_pictures=True, skipped={"slow<b>": "no <i>netem</i>"})
    evil = "<script>alert(1)</script>\x00\"'>"
    lines = []
    for line in (directory / "history.jsonl").read_text().splitlines()[:400]:
        event = json.loads(line)
        if event["process"] < 0:
            event["f"], event["value"] = evil, {"nodes": [evil], "what": evil}
        elif event["type"] == EventKind.OK:
            event["error"] = event["extra"]["node"] = evil
            if event["f"] == "send":
                event["value"] = [["send", evil, [0, evil]]]
        lines.append(json.dumps(event))
    (directory / "history.jsonl").write_text("\n".join(lines) + "\n")
    results = json.loads((directory / "results.json").read_text())
    results["verdicts"][0]["findings"] = [
        {"anomaly": evil, "detail": evil, "operations": [0, 1], "key": evil}
    ]
    (directory / "results.json").write_text(json.dumps(results))
    write_report(directory)
    for path in [*directory.glob("*.html"), *directory.rglob("*.svg")]:
        tree = tree_of(path)
        assert "<script>alert" not in path.read_text()
        assert not [e for e in tree.iter() if e.tag.endswith("script")]
    assert "slow<b>" in text_of(directory / "index.html")


def test_the_matrix_has_the_latest_run_of_each_pair_and_links_to_it(make_run: Make) -> None:
    make_run("queue-kill/20260101T120000", valid=False)
    make_run("queue-kill/20260102T120000")
    make_run(
        "offsets-pause/20260101T120000", valid="unknown", workload="offsets", nemesis=["pause"]
    )
    planted = make_run("queue-kill-x/20260103T120000", valid=False, planted="acks-early")
    store = planted.parents[1]
    index = write_matrix(store)
    tree = tree_of(index)
    cells = [e for e in tree.iter("a") if (e.get("class") or "").startswith("cell ")]
    assert {(c.get("class"), c.get("href")) for c in cells} == {
        ("cell valid", "queue-kill/20260102T120000/index.html"),
        ("cell unknown", "offsets-pause/20260101T120000/index.html"),
    }
    (green,) = (c for c in cells if c.get("class") == "cell valid")
    assert "".join(green.itertext()) == "✓ valid811 ops/s · 5 faults · recovery p99 2.50 s"
    text = text_of(index)
    assert "Of 2 pairs of workload and faults: 1 unknown, 1 valid." in text
    assert text.count("not run") == 2
    assert "acks-early" in text
    assert "✓ found" in text


def test_a_planted_bug_that_was_missed_is_named(make_run: Make) -> None:
    directory = make_run(planted="acks-early")
    text = text_of(write_matrix(directory.parents[1]))
    assert "✗ not found" in text
    assert "no run without a planted bug yet" in text


def test_of_a_planted_bug_the_latest_run_counts_even_one_that_did_not_finish(
    make_run: Make,
) -> None:
    make_run("a/20260101T120000", planted="acks-early", valid=False)
    unfinished = make_run("a/20260102T120000", planted="acks-early")
    (unfinished / "results.json").unlink()
    text = text_of(write_matrix(unfinished.parents[1]))
    planted = text.partition("Planted bugs")[2].partition("All runs")[0]
    assert "? did not finish" in planted
    assert "✓ found" not in planted


def test_an_empty_store_has_a_page_that_says_so(tmp_path: Path) -> None:
    assert "no run without a planted bug yet" in text_of(write_matrix(tmp_path))
