"""One Java process that runs Kafka's tools, and their outputs in a form that can be compared."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ottla.bench.kafka.kafka_server import HOST, java_program

PROGRAM = Path(__file__).with_name("RunTools.java")
PACKAGE = "org.apache.kafka.tools."
JARS_OF_TOOLS = ("kafka-tools-[0-9]*.jar", "kafka_2.13-*.jar")
"""Jars whose classes each run of a tool loads again: tools count in static fields."""
SILENT = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
"""Tools of Kafka's release log warnings only; with slf4j-simple among the jars they would log all
their settings, into the output."""
FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", SILENT)
COMPILE_TIMEOUT_S = 120.0
BY_SIGTERM = 143
SIMPLIFIED = (
    (re.compile(rf"{re.escape(HOST)}:?\s*\d+"), "ADDRESS"),
    (re.compile(r"ADDRESS\s+\(\d+\)"), "ADDRESS (COORDINATOR)"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"(?<![\w/+-])(?=\S*[a-z])(?=\S*[A-Z])[\w/+-]{22}(?![\w/+-])"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,:]\d+Z?"), "TIME"),
    (re.compile(r"\b\d{13}\b"), "TIME"),
    (re.compile(r"(?<=Epoch: )\d+|(?<=Local controller )\d+"), "NUMBER"),
    (re.compile(r"(?<=-consumer-)\d+|(?<=log-cleaner-test-)-?\d+"), "NUMBER"),
    (re.compile(r"\s+"), " "),
)
UNENDED = re.compile(r"\}(?=\{|Processed)")
"""End of a record, after which formatters end no line."""
NUMBER = re.compile(r"\d+(\.\d+)?")
NO_CONTENT = ("SLF4J", "\tat ", "Caused by:", "WARNING: ")


class Outcome(NamedTuple):
    """Exit code and simplified output of a tool."""

    code: int
    lines: list[str]


class ToolProcess:
    """A Java process that runs one tool at a time."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._class_path = f"{jars}/*"
        self._java = java_program(os.environ)
        words = [f"{self._java}c", "-cp", self._class_path, "-d", str(directory), str(PROGRAM)]
        subprocess.run(words, check=True, timeout=COMPILE_TIMEOUT_S)
        own = sorted(one for pattern in JARS_OF_TOOLS for one in jars.glob(pattern))
        others = sorted(one for one in jars.glob("*.jar") if one not in own)
        class_path = os.pathsep.join(map(str, [directory, *others]))
        self._process = subprocess.Popen(
            [
                *(self._java, *FLAGS, f"-Djava.io.tmpdir={directory}", "-cp", class_path),
                *(PROGRAM.stem, *map(str, own)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> "ToolProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._process as process:
            process.kill()

    def run(self, tool: str, words: list[str], given: str, seconds: int) -> tuple[int, str]:
        """Run a tool in this process; return its exit code and output."""
        asked = {"tool": full_name(tool), "words": words, "input": given, "seconds": seconds}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["output"]

    def run_alone(self, tool: str, words: list[str], given: str, seconds: int) -> tuple[int, str]:
        """Run a tool in a process of its own, which is ended by SIGTERM after a time."""
        with subprocess.Popen(
            [self._java, *FLAGS, "-cp", self._class_path, full_name(tool), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                output, _ = process.communicate(given, seconds)
            except subprocess.TimeoutExpired:
                process.terminate()
                output, _ = process.communicate()
            return process.returncode, output


def full_name(tool: str) -> str:
    """Return the name of a tool's class with its package."""
    return tool if tool.startswith("kafka.") else PACKAGE + tool


def simplified(text: str, names: Mapping[str, str], *, are_numbers_kept: bool) -> list[str]:
    """Return the lines of an output without addresses, ids, times and traces.

    `names` maps further texts, such as directories, to their replacements.
    """
    for found, name in names.items():
        text = text.replace(found, name)
    lines = []
    for line in UNENDED.sub("}\n", text).splitlines():
        if line.strip() and not line.startswith(NO_CONTENT):
            for pattern, name in SIMPLIFIED:
                line = pattern.sub(name, line)
            lines.append(line.strip() if are_numbers_kept else NUMBER.sub("N", line).strip())
    return lines
