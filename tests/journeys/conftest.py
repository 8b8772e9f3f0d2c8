"""The documents' own commands, replayed as a reader would paste them, each with its time.

A page's commands are the lines of its `sh` blocks and the lines behind `$ ` of its unnamed blocks.
They are typed one after the other into a shell that stays open.  Every command must end with 0.
What is not replayed is listed by the test, with its reason; a reason for a command that is not on
the page is an error.
"""

import contextlib
import json
import os
import re
import selectors
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.secrets_in_sight import open_to_others, secrets_in_sight

ROOT = Path(__file__).parents[2]
END_OF_STEP = "end-of-step-2f6b"
STEP_TIMEOUT_S = 600.0
"""The slowest step installs packages from the network."""

CAN_SEPARATE = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "ip")))
"""True if a journey can have its own network, in which the documents' ports are free."""


class Block(NamedTuple):
    """A fenced block of a page."""

    heading: str
    language: str
    text: str


class Step(NamedTuple):
    """A command that was typed, and how it went."""

    page: str
    heading: str
    command: str
    seconds: float


class StepFailedError(Exception):
    """A document's command ended with another code than 0, or not at all."""


class Page:
    """A document as its reader meets it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks: list[Block] = []
        heading, fence = "", ""
        lines: list[str] = []
        for line in (ROOT / name).read_text().splitlines():
            if fence:
                if line.strip() == "```":
                    self.blocks.append(Block(heading, fence[3:], "\n".join(lines) + "\n"))
                    fence, lines = "", []
                else:
                    lines.append(line)
            elif line.startswith("```"):
                fence = line.strip()
            elif line.startswith("#"):
                heading = line.lstrip("# ")

    def commands(self, heading: str | None = None) -> list[str]:
        """Return all commands, or those of one section, in order."""
        found: list[str] = []
        for block in self.blocks:
            if heading is None or block.heading == heading:
                if block.language == "sh":
                    found += logical_lines(block.text)
                elif not block.language:
                    found += re.findall(r"^\$ (.*)$", block.text, re.MULTILINE)
        return found

    def sections(self) -> list[str]:
        """Return the headings of all sections that have commands."""
        return [
            heading
            for heading in dict.fromkeys(block.heading for block in self.blocks)
            if self.commands(heading)
        ]

    def program(self, marker: str) -> str:
        """Return the one Python program that contains a text."""
        (found,) = [
            block.text
            for block in self.blocks
            if block.language == "python" and marker in block.text
        ]
        return found


def logical_lines(text: str) -> list[str]:
    """Return the commands of a block: a backslash or a here-document continues in the next line."""
    found: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        whole = line
        while whole.endswith("\\"):
            whole += "\n" + next(lines)
        here = re.search(r"<<-?\s*['\"]?(\w+)['\"]?", whole)
        while here is not None:
            line = next(lines)
            whole += "\n" + line
            if line == here[1]:
                break
        if whole.strip() and not whole.lstrip().startswith("#"):
            found.append(whole)
    return found


FEWER_COMPILED = {"PIP_NO_COMPILE": "0"}
"""Variables of each terminal. pip would compile all modules of a hundred packages, most of which no
step imports: half a minute of CPU. pip reads the value of an option that begins with `no-` as that
of the option without it, so 0 is the value that compiles nothing."""


class Terminal:
    """A shell that stays open; owns its process, and ends it with all the processes that it
    started.

    `prefix` is the command that starts the shell, for example `unshare --net`. Such a shell has no
    network, so commands that install packages are typed outside.
    """

    def __init__(
        self,
        directory: Path,
        steps: list[Step],
        *,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        set_up: str = ":",
    ) -> None:
        self.is_separate = "--net" in prefix
        self._directory = directory
        self._steps = steps
        self._process = subprocess.Popen(
            [*prefix, "bash", "--noprofile", "--norc"],
            cwd=directory,
            env={**os.environ, **FEWER_COMPILED, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._rest = b""
        self.type(set_up)

    @property
    def pid(self) -> int:
        """The shell's process."""
        return self._process.pid

    def replay(
        self,
        page: Page,
        heading: str | None = None,
        *,
        but: Mapping[str, str] | None = None,
        instead: Callable[[str], str] = lambda command: command,
    ) -> list[str]:
        """Type a page's commands, or those of one section; return the output of each.

        `but` has the omitted commands, by their beginning, with the reason. `instead` may change a
        command, for details that differ from machine to machine.
        """
        left_out = but or {}
        commands = page.commands(heading)
        assert commands, f"{page.name} has no commands under {heading!r}"
        for start in left_out:
            assert any(one.startswith(start) for one in commands), f"not in {page.name}: {start}"
        section = heading or ""
        return [
            self.step(page, section, instead(command))
            for command in commands
            if not any(command.startswith(start) for start in left_out)
        ]

    def step(
        self, page: Page, heading: str, command: str, *, timeout_s: float = STEP_TIMEOUT_S
    ) -> str:
        """Type one of a page's commands and note its time."""
        began_at = time.monotonic()
        printed = self.type(command, timeout_s=timeout_s)
        seconds = time.monotonic() - began_at
        self._steps.append(Step(page.name, heading, command, seconds))
        self._check_clusters()
        return printed

    def _check_clusters(self) -> None:
        """Check that no local cluster here shows its secrets to other users of the machine."""
        for file in self._directory.glob("*/cluster.json"):
            users = file.parent / "security" / "users.json"
            secrets = json.loads(users.read_text()).values() if users.exists() else ()
            assert secrets_in_sight(secrets, file.parent) == []
            assert open_to_others(file.parent) == []

    def type(self, command: str, *, timeout_s: float = STEP_TIMEOUT_S) -> str:
        """Type a command and return its output.  Raises StepFailedError unless it ends with 0."""
        parts = command.split(" && ") if self.is_separate else [command]
        text = " && ".join(map(self._reaching_the_world, parts))
        keys = _pipe(self._process.stdin)
        keys.write(f"{text}\nprintf '\\n%s %d\\n' {END_OF_STEP} $?\n".encode())
        keys.flush()
        printed, code = self._read(timeout_s)
        if code != 0:
            raise StepFailedError(f"$ {command}\n{printed}\nexit code {code}")
        return printed

    def _reaching_the_world(self, command: str) -> str:
        """Return a command that installs packages as one outside of the shell's own network."""
        if not (self.is_separate and re.search(r"\bpip install\b", command)):
            return command
        outside = f"nsenter --net=/proc/{os.getpid()}/ns/net bash -c"
        return f"{outside} {shlex.quote(command)}"

    def _read(self, timeout_s: float) -> tuple[str, int]:
        screen = _pipe(self._process.stdout)
        end = re.compile(rb"\n" + END_OF_STEP.encode() + rb" (\d+)\n")
        ends_at = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(screen, selectors.EVENT_READ)
            while (found := end.search(self._rest)) is None:
                if not selector.select(max(0.0, ends_at - time.monotonic())):
                    raise StepFailedError(f"no end in {timeout_s:g} s:\n{self._rest.decode()}")
                arrived = os.read(screen.fileno(), 65_536)
                if not arrived:
                    raise StepFailedError(f"the shell ended:\n{self._rest.decode()}")
                self._rest += arrived
        printed, self._rest = self._rest[: found.start()], self._rest[found.end() :]
        return printed.decode(), int(found[1])

    def close(self) -> None:
        """End the shell, and whatever of its session is left."""
        with contextlib.suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


STEPS: list[Step] = []


@pytest.fixture
def steps() -> list[Step]:
    """Typed commands; printed with their times when all tests are done."""
    return STEPS


@pytest.fixture
def can_separate() -> bool:
    """Return True if a journey can have its own network."""
    return CAN_SEPARATE


@pytest.fixture
def is_free() -> Callable[[int], bool]:
    """Return True if a port of this machine is free."""

    def ask(port: int) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) != 0

    return ask


@pytest.fixture
def page() -> type[Page]:
    """The class of documents."""
    return Page


@pytest.fixture
def open_terminal(steps: list[Step]) -> Iterator[Callable[..., Terminal]]:
    """Open shells that are closed after the test."""
    with contextlib.ExitStack() as stack:

        def open_one(directory: Path, **others: object) -> Terminal:
            terminal = Terminal(directory, steps, **others)  # type: ignore[arg-type]
            stack.callback(terminal.close)
            return terminal

        yield open_one


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that a reader would have cloned."""
    copy = tmp_path / "ottla"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        return copy
    for name in filter(None, found.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the duration of each step."""
    if not STEPS:
        return
    terminalreporter.section("the documents' commands, and what they took")
    for name in dict.fromkeys(step.page for step in STEPS):
        mine = [step for step in STEPS if step.page == name]
        whole = sum(step.seconds for step in mine)
        terminalreporter.line(f"{name}: {len(mine)} commands, {whole:.1f} s")
        for step in mine:
            first = step.command.partition("\n")[0]
            terminalreporter.line(f"  {step.seconds:6.1f} s  {first[:100]}")
