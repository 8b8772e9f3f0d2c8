"""A message in use has a current generated file; others are generated in memory."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ottla.wire.messages
from ottla.wire import codec, generator
from ottla.wire.apis import message_class, message_module
from ottla.wire.schema import module_name

FOLDER = Path(ottla.wire.messages.__path__[0])
ROOT = Path(__file__).parents[2]
MODULES = {module_name(message): message for message in generator.schema_files()}


def test_the_committed_classes_are_current() -> None:
    committed = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    del committed["__init__"]
    expected = {name: generator.generate(MODULES[name]) for name in committed}
    assert committed == expected, "run python -m ottla.wire.generator"


def test_a_message_has_a_file_exactly_if_code_outside_of_tests_uses_it() -> None:
    used = {
        module
        for path in ROOT.glob("*/ottla/**/*.py")
        if path.parent != FOLDER
        if "ottla.wire.messages" in (text := path.read_text())  # few need a syntax tree
        for module in messages_imported(ast.parse(text))
    }
    committed = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert used - committed == set(), "run python -m ottla.wire.generator with their names"
    assert committed - used == set(), "nothing uses these: remove their files"


def messages_imported(tree: ast.Module) -> set[str]:
    """Return the modules of messages that a module imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            parent, _, module = node.module.rpartition(".")
            if parent == "ottla.wire.messages":
                found.add(module)
            elif node.module == "ottla.wire.messages":
                found |= {alias.name for alias in node.names}
    return found


def test_a_message_without_a_file_is_made_in_memory_once() -> None:
    made = message_module("VoteRequest")
    assert made is message_module("VoteRequest")
    assert not (FOLDER / "vote_request.py").exists()
    request = made.VoteRequest(cluster_id="c", voter_id=7)
    assert codec.decode(made.VoteRequest, 2, codec.encode(request, 2)) == request


def test_a_message_with_a_file_is_imported_from_it() -> None:
    module = message_module("ProduceRequest")
    assert module.__name__ == "ottla.wire.messages.produce_request"
    assert message_class("ProduceRequest") is module.ProduceRequest


def test_a_message_that_no_schema_declares_is_refused() -> None:
    with pytest.raises(KeyError, match="UpdateMetadataRequest"):
        message_class("UpdateMetadataRequest")


@pytest.mark.interpreted_only("makes a module's import fail")
def test_a_missing_import_inside_of_a_message_file_is_not_taken_for_a_missing_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ottla.wire.messages.produce_request", raising=False)
    monkeypatch.setitem(sys.modules, "ottla.wire.codec_types", None)
    with pytest.raises(ModuleNotFoundError, match="codec_types"):
        message_class("ProduceRequest")


def test_the_generator_refuses_a_message_that_no_schema_declares() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla.wire.generator", "UpdateMetadataRequest"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "UpdateMetadataRequest" in done.stderr


def test_a_module_is_named_after_its_message() -> None:
    assert module_name("ProduceRequest") == "produce_request"
    assert module_name("KRaftVersionRecord") == "kraft_version_record"
    assert module_name("OffsetForLeaderEpochResponse") == "offset_for_leader_epoch_response"
