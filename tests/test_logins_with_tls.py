"""Every caller that passes a login to a connection passes its encryption, too."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("client", "cli", "pipeline")
BESIDE_A_LOGIN = {"tls", "bootstrap"}
"""`bootstrap` is in TelemetryOptions, whose login is all options of Spark, TLS included."""


def lines_without_tls(source: str) -> list[int]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    named = ((call.lineno, {one.arg for one in call.keywords}) for call in calls)
    return [line for line, names in named if "login" in names and not names & BESIDE_A_LOGIN]


def test_no_call_passes_a_login_without_tls() -> None:
    # Three connections of Spark's source and sink did: they were plain where TLS was asked for.
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): lines_without_tls(path.read_text()) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_such_a_call_is_found() -> None:
    assert lines_without_tls("a = 1\nopen_cluster(a, login=config.login())") == [2]
    assert lines_without_tls("open_cluster(a, login=config.login(), tls=config.tls())") == []
