"""The command's frame: output and exit codes before a cluster is reached."""

import argparse
import json
from pathlib import Path

import pytest

from ottla.cli import common
from ottla.cli.common import counted
from ottla.cli.main import (
    COMMANDS,
    INTERRUPTED,
    REFUSED,
    UNHEALTHY,
    UNKNOWN,
    UNREACHABLE,
    guarded,
    run,
)
from ottla.cli.records.consume import parse_offset
from ottla.cli.tables import table
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import (
    ConfigError,
    CorruptDataError,
    ErrorCode,
    OttlaError,
    ProtocolError,
    RefusedError,
)

NOBODY = "localhost:1"


def test_no_command_prints_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_an_unknown_command_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["frobnicate"]) == REFUSED
    assert capsys.readouterr().err == (
        "ottla: there is no command 'frobnicate'; see 'ottla --help'\n"
    )


def test_a_usage_error_ends_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "create"]) == REFUSED
    assert "see 'ottla topic" in capsys.readouterr().err


def test_a_closed_port_is_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "list", "--bootstrap", NOBODY]) == UNREACHABLE
    assert capsys.readouterr().err.startswith(f"ottla topic: cannot connect to {NOBODY}")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS), REFUSED),
        (RefusedError(ErrorCode.NETWORK_EXCEPTION, "the controllers did not answer"), UNREACHABLE),
        (ConnectionLostError("it closed"), UNREACHABLE),
        (CorruptDataError("batch at 7"), UNHEALTHY),
        (ProtocolError("Fetch"), UNKNOWN),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    error: OttlaError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(parsed: argparse.Namespace) -> int:
        raise error

    assert guarded("topic", body, argparse.Namespace()) == code
    assert capsys.readouterr().err.startswith("ottla topic: ")


def test_a_denied_request_leads_to_the_command_that_explains_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def body(parsed: argparse.Namespace) -> int:
        raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    assert guarded("topic", body, argparse.Namespace()) == REFUSED
    assert "'ottla acl explain' shows the ACL that decides" in capsys.readouterr().err


def test_no_cluster_at_the_default_address_leads_to_the_command_that_starts_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    monkeypatch.setattr(common, "BOOTSTRAP_DEFAULT", NOBODY)

    assert run(["topic", "list"]) == UNREACHABLE
    assert "'ottla up --detach' starts one" in capsys.readouterr().err
    assert run(["topic", "list", "--bootstrap", NOBODY]) == UNREACHABLE
    assert "ottla up" not in capsys.readouterr().err


def test_a_refused_connection_names_the_command_that_shows_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def body(parsed: argparse.Namespace) -> int:
        raise ConnectionLostError("localhost:9092 hung up")

    assert guarded("topic", body, argparse.Namespace()) == UNREACHABLE
    assert "'ottla status' tells how far it is" in capsys.readouterr().err


def test_an_interrupt_that_c_code_wrapped_is_one() -> None:
    def interrupted(parsed: argparse.Namespace) -> int:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    def broken(parsed: argparse.Namespace) -> int:
        raise SystemError

    assert guarded("topic", interrupted, argparse.Namespace()) == INTERRUPTED
    with pytest.raises(SystemError):
        guarded("topic", broken, argparse.Namespace())


@pytest.mark.parametrize("text", ["nonsense", "host:", "host:99999999"])
def test_a_bad_bootstrap_says_what_is_allowed(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--bootstrap", text]) == REFUSED
    assert "it must be host:port" in capsys.readouterr().err


def test_a_directory_without_a_cluster_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "--dir", str(tmp_path)]) == REFUSED
    assert "start the cluster with 'ottla up'" in capsys.readouterr().err


def test_a_cluster_file_of_another_user_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.json").write_text(json.dumps([1, 2]))
    assert run(["down", "--dir", str(tmp_path)]) == REFUSED
    assert "was not written by 'ottla up'" in capsys.readouterr().err


def test_columns_line_up_numbers_to_the_right() -> None:
    shown = table(("NAME", "COUNT"), [("a", 5), ("longer", 1000)])
    assert shown.splitlines() == ["NAME    COUNT", "a           5", "longer   1000"]


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("beginning", "beginning", None),
        ("end", "end", None),
        ("47", "47", None),
        ("-3", "-3", None),
        ("s@1000,e@2000", "s@1000", 2000),
    ],
)
def test_offsets_are_written_as_kcat_writes_them(text: str, start: str, stop: int | None) -> None:
    assert parse_offset(text) == (start, stop)


def test_one_is_no_plural() -> None:
    assert [counted(count, "record") for count in (0, 1, 2)] == [
        "0 records",
        "1 record",
        "2 records",
    ]


def test_an_invalid_offset_is_refused() -> None:
    with pytest.raises(ConfigError, match="it must be beginning, end"):
        parse_offset("yesterday")
