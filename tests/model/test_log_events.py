"""The names of logged events: each is declared, used and documented."""

import ast
import re
from pathlib import Path

from ottla.model.log_events import EVENT_OF_LOGGER, EVENTS, UNNAMED

ROOT = Path(__file__).parents[2]
NODES = ("model", "storage", "raft", "metadata", "rpc", "node", "controller", "broker", "cli")


def names_used() -> set[str]:
    found: set[str] = set()
    for folder in NODES:
        for path in (ROOT / folder / "ottla").rglob("*.py"):
            text = path.read_text()
            if "log_events" not in text and path.stem != "change_log":
                continue
            if path.stem == "log_events":
                continue
            texts = [
                one.value for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Constant)
            ]
            found.update(
                one
                for one in texts
                if isinstance(one, str) and re.fullmatch(r"[a-z]+\.[a-z]+", one)
            )
    return found


def test_every_event_is_logged_somewhere() -> None:
    assert set(EVENTS) - {UNNAMED} <= names_used() | set(EVENT_OF_LOGGER.values())


def test_a_logger_with_an_event_exists() -> None:
    for name, given in EVENT_OF_LOGGER.items():
        path = ROOT / name.split(".")[1] / name.replace(".", "/")
        is_there = path.is_dir() or path.with_suffix(".py").exists()
        assert is_there or name in ("ottla.errors",), name
        assert given in EVENTS


def test_every_event_is_documented_with_its_meaning() -> None:
    page = (ROOT / "docs" / "logs.md").read_text()
    for name, meaning in EVENTS.items():
        assert f"| `{name}` | {meaning} |" in page


def test_every_name_given_to_a_log_call_is_declared() -> None:
    for folder in NODES:
        for path in (ROOT / folder / "ottla").rglob("*.py"):
            text = path.read_text()
            if "log_events" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("event"):
                    first = node.args[0] if node.args else None
                    if isinstance(first, ast.Constant):
                        assert first.value in EVENTS, f"{path}: {first.value!r}"
