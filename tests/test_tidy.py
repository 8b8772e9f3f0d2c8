"""Rules about the tree itself, checked as tests: allowed imports, and modules that stay pure."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import LONG
from tests.plain_english import plain_files, violations

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
SHIPPED: list[str] = PYPROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]
FOLDERS = [*SHIPPED, "tools"]

BASE = {"model", "wire", "telemetry"}
SHARED = {*BASE, "proto", "storage", "raft", "metadata", "rpc"}
# A package may import the packages named on its own line and nothing else of ours.
MAY_IMPORT: dict[str, set[str]] = {
    "proto": set(),
    "model": set(),
    "wire": {"model"},
    "telemetry": {"model", "wire", "proto"},
    "storage": BASE,
    "raft": {*BASE, "storage"},
    "metadata": {"model", "proto"},
    "rpc": {"model", "proto", "raft", "metadata"},
    "node": {*SHARED, "client"},
    "controller": {*SHARED, "node"},
    "client": BASE,
    "broker": {*SHARED, "node", "client"},
    "insight": {*SHARED, "client"},
    "console": {"model", "wire", "client", "insight"},
    "pipeline": {*BASE, "client", "storage"},
    "jepsen": {*SHARED, "node", "controller", "client", "broker"},
    "testing": {*SHARED, "node", "controller", "client", "broker", "jepsen"},
    "bench": {*SHARED, "node", "controller", "client", "broker", "pipeline", "jepsen"},
    "cli": {
        *SHARED, "node", "controller", "client", "broker", "insight", "console", "pipeline",
        "jepsen", "bench", "testing",
    },
    "tools": {*SHARED, "node", "controller", "client", "broker", "testing", "jepsen", "cli"},
}  # fmt: skip
# What touches the clock, chance, the network or the disk: only drivers may.
IMPURE = {
    "trio", "grpc", "time", "random", "os", "socket", "select", "selectors", "ssl", "threading",
    "asyncio", "subprocess", "signal", "mmap", "tempfile", "shutil", "concurrent",
    "multiprocessing", "secrets", "fcntl", "ctypes",
}  # fmt: skip
IMPURE_CALLS = {("datetime", "now"), ("uuid", "uuid4"), ("datetime", "utcnow")}
PURE = (
    "model", "wire", "telemetry", "storage", "raft", "metadata", "node", "controller", "broker",
    "insight",
)  # fmt: skip
EDGES = ("_driver", "_service")
"""Endings of the modules that act; in packages that are not pure any module may."""
PURE_IN_CLIENT = {
    "accumulator", "acknowledgement_ranges", "array_columns", "assignors", "client_metrics",
    "consumer_member",
    "consumer_metrics", "failover", "fetch_session", "fetched", "framing", "group_member",
    "measures", "metric_points", "otlp_payload", "partitioner", "positions",
    "producer_identities", "partition_queue", "producer_metrics", "push_session", "record_batch",
    "record_decoder", "record_encoding", "registry_errors", "schema_registry", "schema_values",
    "broker_versions", "share_acknowledgements", "share_fetched", "share_member", "share_metrics",
    "share_session",
    "sticky_user_data", "subjects", "subscription", "transaction_flow",
    "transaction_messages", "transactional_accumulator",
}  # fmt: skip
PURE_IN_PIPELINE = {
    "arrow_decode", "arrow_schema", "batch_position", "compaction_plan", "doctor",
    "fetched_batches", "json_values", "key_hashes", "offsets", "option_values", "parquet_layout",
    "points", "progress", "provenance", "quantiles", "range_progress", "ranges",
    "read_options", "replays", "sink_log", "sink_options", "source_options", "spark_errors",
    "spark_versions", "table_columns", "table_position", "value_schema",
}  # fmt: skip
EXEMPT = {"wire/ottla/wire/generator.py"}

# Sub-packages, lowest first: a module imports only its own sub-package and those before it.
SUBPACKAGES: dict[str, tuple[str, ...]] = {
    "telemetry": ("clients", "exporters", "metrics"),
    "storage": (
        "disk",
        "segments",
        "tier",
        "producers",
        "recovery",
        "log",
        "cleaner",
        "directories",
        "losses",
        "manager",
        "inspection",
    ),
    "broker": (
        "quotas",
        "cluster",
        "replicas",
        "tier",
        "logs",
        "coordinators",
        "share_state",
        "shares",
        "groups",
        "transactions",
        "metrics",
    ),
    "client": (
        "telemetry",
        "network",
        "produce",
        "fetch",
        "registry",
        "schemas",
        "groups",
        "share",
        "transactions",
        "instrumentation",
        "admin_parts",
        "testing",
    ),
    "pipeline": (
        "run",
        "registry",
        "write",
        "read",
        "archive",
        "export",
        "maintenance",
        "tables",
        "doctor",
        "rollup",
    ),
    "insight": ("facts", "rules", "changes"),
    "console": ("access", "history", "records", "views"),
    "controller": ("replication", "settings", "membership", "security", "front", "kafka"),
    "cli": (
        "background",
        "security",
        "cluster",
        "topics",
        "records",
        "logs",
        "groups",
        "transactions",
        "quotas",
        "users",
        "metrics",
        "pipelines",
        "backup",
        "tier",
        "lab",
    ),
}

SHARED_MODULES: dict[str, tuple[str, ...]] = {
    "telemetry": (),
    "storage": (),
    "broker": (),
    "client": (),
    "insight": ("explanation",),
    "console": (
        "absences",
        "cluster_rows",
        "form_values",
        "http_errors",
        "links",
        "listing",
        "live_views",
        "long_actions_driver",
        "page_types",
        "partition_offsets_driver",
        "path_route",
        "shared_facts_driver",
        "requests_driver",
        "seams",
        "setting_rows",
        "sheets",
    ),
    "pipeline": ("java", "loop_thread", "one_sentence", "option_values"),
    "controller": ("broker_epochs", "decision", "requester", "settings_in_force"),
    "cli": (
        "common",
        "confirmation",
        "examples",
        "imports",
        "main",
        "options",
        "outcomes",
        "own_command",
        "parser",
        "profiles",
        "process_title",
        "secret_files",
        "suggestions",
        "tables",
        "terminal",
        "times",
        "verbs",
    ),
}
"""Modules outside of sub-packages that sub-packages may import."""

PLAIN_FOLDERS = (
    "bench",
    "broker",
    "cli",
    "client",
    "console",
    "controller",
    "deploy",
    "docs",
    "insight",
    "jepsen",
    "metadata",
    "model",
    "node",
    "pipeline",
    "proto",
    "raft",
    "rpc",
    "storage",
    "telemetry",
    "testing",
    "tests",
    "tools",
    "wire",
)
"""Folders whose language is checked, one a line; a folder that is clean is added."""

SAME_NAME: dict[str, str] = {}
"""Class names that stand for two things; nothing is to be added."""

REAL_CLOCKS = {
    f"time.{name}{unit}" for name in ("monotonic", "perf_counter", "time") for unit in ("", "_ns")
}
MAY_BOUND_TIME = re.compile(
    rf"\b(?:{'|'.join(map(re.escape, sorted(REAL_CLOCKS)))})\b|current_time|fail_after|usefixtures"
)
"""Words of which one is in each file that bounds real time."""
VIRTUAL_TIME = ("MockClock", "autojump_clock", "mock_clock", "run_in_virtual_time")
"""Names in a file or a test where `trio` has a virtual clock."""
REAL_S_MIN = 30
"""Seconds that a test of real time may bound from above; fewer pass by where nothing hangs, but
the machine has much to do."""

FUNCTION_LINES_MAX = 70
MODULES_MAX = 25
"""Modules of one folder: more need folders of their own."""
FILE_LINES_MAX = 800
LINE_COLUMNS_MAX = 100


def sources() -> Iterator[tuple[str, Path]]:
    """Yield each hand-written module with the package it belongs to."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder / "ottla" / folder).rglob("*.py")):
            if "_pb2" not in path.name and "messages" not in path.parts:
                yield folder, path


class ModuleFacts(NamedTuple):
    """Facts of a module for the rules, so that it is parsed once; its tree would be a megabyte."""

    text: str
    has_docstring: bool
    statement_count: int
    imported: tuple[str, ...]
    modules_imported: frozenset[str]
    classes: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]
    """Each function with its lines."""
    calls: frozenset[tuple[str, str]]
    """Calls by name and attribute, such as `time.sleep`."""


@cache
def facts_of(path: Path) -> ModuleFacts:
    """Return the facts of a module."""
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    calls = [
        node.func
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    return ModuleFacts(
        text=text,
        has_docstring=bool(ast.get_docstring(tree)),
        statement_count=len(tree.body),
        imported=tuple(imported(nodes)),
        modules_imported=frozenset(modules_imported(nodes)),
        classes=tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        functions=tuple(
            (node.name, (node.end_lineno or 0) - node.lineno)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        calls=frozenset(
            (call.value.id if isinstance(call.value, ast.Name) else "", call.attr) for call in calls
        ),
    )


def imported(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the dotted name of every module that the nodes of a file import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level > 0:
            # A relative import could climb into another package unseen.
            yield "ottla.relative"
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "ottla":
                yield from (f"ottla.{alias.name}" for alias in node.names)
            else:
                yield node.module


def is_edge(package: str, path: Path) -> bool:
    """Return whether a module may act: use time, chance, sockets, files."""
    relative = str(path.relative_to(ROOT))
    if package == "client" and path.stem in PURE_IN_CLIENT:
        return False
    if package == "pipeline" and path.stem in PURE_IN_PIPELINE:
        return False
    return package not in PURE or path.stem.endswith(EDGES) or relative in EXEMPT


def label(value: str | Path) -> str:
    """Name a case by its package or by its path from the root."""
    return str(value).removeprefix(f"{ROOT}/")


def test_every_folder_is_one_typed_portion_of_the_namespace() -> None:
    assert set(FOLDERS) == set(MAY_IMPORT)
    for folder in FOLDERS:
        assert not (ROOT / folder / "__init__.py").exists()
        # One stray file here would hide every other portion of the namespace.
        assert not (ROOT / folder / "ottla" / "__init__.py").exists()
        assert (ROOT / folder / "ottla" / folder / "py.typed").exists()
        assert (ROOT / folder / "README.md").exists(), f"{folder}/README.md tells where to start"


def test_imports_between_packages_have_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {name for name, others in MAY_IMPORT.items() if others <= done} - done
        assert ready, f"a cycle among {set(MAY_IMPORT) - done}"
        done |= ready


def test_the_folder_lists_of_every_tool_agree() -> None:
    tool = PYPROJECT["tool"]
    assert tool["mypy"]["mypy_path"] == [f"$MYPY_CONFIG_FILE_DIR/{name}" for name in FOLDERS]
    assert tool["mypy"]["files"] == [*FOLDERS, "tests"]
    shipped = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {one for one in shipped if not one.endswith("/ottla")} == {"pipeline/pyspark_ottla"}
    assert [one for one in shipped if one.endswith("/ottla")] == [f"{one}/ottla" for one in SHIPPED]


def broken_rules(package: str, path: Path) -> Iterator[str]:
    """Yield the house rules that a module breaks."""
    facts = facts_of(path)
    is_pure = not is_edge(package, path)
    if not facts.has_docstring:
        yield "a module begins with a docstring"
    for name in facts.imported:
        if name.startswith("ottla."):
            other = name.split(".")[1]
            if other != package and other not in MAY_IMPORT[package]:
                yield f"{package} imports {other}"
        if is_pure and name.split(".")[0] in IMPURE:
            yield f"{package} is pure but imports {name}"
    lines = facts.text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield f"it has {len(lines)} lines"
    if any(len(line) > LINE_COLUMNS_MAX for line in lines):
        yield f"a line has more than {LINE_COLUMNS_MAX} columns"
    for name, line_count in facts.functions:
        if line_count >= FUNCTION_LINES_MAX:
            yield f"{name} has {line_count} lines"
    if is_pure and not facts.calls.isdisjoint(IMPURE_CALLS):
        yield f"{package} is pure but calls {sorted(facts.calls & IMPURE_CALLS)}"


# A test for each of 1,900 modules would cost more in pytest than in the rules.
@pytest.mark.parametrize("package", FOLDERS)
def test_each_module_keeps_the_house_rules(package: str) -> None:
    found = [
        f"{label(path)}: {rule}"
        for folder, path in sources()
        if folder == package
        for rule in broken_rules(package, path)
    ]
    assert found == []


def test_a_folder_has_few_modules() -> None:
    counts = Counter(
        path.parent
        for top in (*FOLDERS, "tests")
        for path in (ROOT / top).rglob("*.py")
        if path.name not in ("__init__.py", "conftest.py") and "messages" not in path.parts
    )
    assert [label(folder) for folder, count in counts.items() if count > MODULES_MAX] == []


def test_sub_packages_import_only_lower_ones() -> None:
    upward = []
    for package, path in sources():
        if package not in SUBPACKAGES:
            continue
        order = SUBPACKAGES[package]
        folder, *rest = path.relative_to(ROOT / package / "ottla" / package).parts
        assert not rest or folder in order, f"{label(path)} is in no listed sub-package"
        allowed = {*order[: order.index(folder) + 1], *SHARED_MODULES[package]} if rest else None
        for name in facts_of(path).imported:
            other = name.removeprefix(f"ottla.{package}.").split(".")[0]
            if name.startswith(f"ottla.{package}.") and allowed and other not in allowed:
                upward.append(f"{label(path)} imports {name}")
    assert upward == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = {module_of(path): facts_of(path).modules_imported for _, path in sources()}
    imports = {name: others & found.keys() - {name} for name, others in found.items()}
    # A module that nothing else left imports, or that imports nothing left, is in no circle.
    while leaves := [name for name, others in imports.items() if not others & imports.keys()]:
        for name in leaves:
            del imports[name]
    assert sorted(imports) == []


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_imported(nodes: list[ast.AST]) -> set[str]:
    """Return the possible modules among the imports of a file, those for type checkers too."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for _, path in sources():
        for name in facts_of(path).classes:
            if not name.startswith("_"):
                homes.setdefault(name, []).append(label(path))
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert {name: shared[name] for name in shared.keys() - SAME_NAME.keys()} == {}
    # A name that was given up is struck off, so that it cannot be shared again.
    assert SAME_NAME.keys() - shared.keys() == set()


def test_grpc_is_met_in_one_place_and_immutables_in_one_file() -> None:
    # One call to a collector every now and then is the exception, and tells why in its file.
    users: dict[str, set[str]] = {"grpc": set(), "immutables": set()}
    for package, path in sources():
        for name in facts_of(path).imported:
            if name.split(".")[0] == "grpc" and path.name != "otlp_grpc_driver.py":
                users["grpc"].add(package)
            if name.split(".")[0] == "immutables":
                users["immutables"].add(path.name)
    assert users["grpc"] <= {"rpc"}
    assert users["immutables"] <= {"persistent_map.py"}


def test_an_init_file_holds_the_file_map_and_nothing_else() -> None:
    for package, path in sources():
        if path.name == "__init__.py" and package not in ("client", "pipeline", "testing"):
            assert facts_of(path).statement_count == 1, f"{path} holds more than its docstring"


@pytest.mark.parametrize("folder", PLAIN_FOLDERS)
def test_a_folder_is_in_plain_english(folder: str) -> None:
    # `python -m tests.plain_english FOLDER` prints the same list.
    assert [one for path in plain_files(ROOT / folder) for one in violations(path)] == []


def test_the_first_pages_are_in_plain_english() -> None:
    assert [one for path in sorted(ROOT.glob("*.md")) for one in violations(path)] == []


class RealTimeBounds(ast.NodeVisitor):
    """The places of a test file that fail on a machine with much to do.

    They are assertions that real time took less than a few seconds, guards against hangs of less,
    and clocks that `usefixtures` names: pytest-trio runs no test by them.
    """

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.found: list[str] = []
        self._is_virtual = any(word in text for word in VIRTUAL_TIME)
        self._seconds = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._took: set[str] = set()
        """Names of times that something took, and of functions that return one."""
        self._ends: set[str] = set()
        """Names of instants a few seconds ahead."""
        while True:  # a time may be named after another
            count = len(self._took) + len(self._ends)
            self.visit(tree)
            if len(self._took) + len(self._ends) == count:
                break
            self.found.clear()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self._is_virtual
        names = " ".join(ast.unparse(one) for one in [node.args, *node.decorator_list])
        if any(word in names for word in VIRTUAL_TIME):
            self._is_virtual = True
        elif isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
            self._is_virtual = False
        if any(
            isinstance(one, ast.Return) and self._is_elapsed(one.value) for one in ast.walk(node)
        ):
            self._took.add(node.name)
        self.generic_visit(node)
        self._is_virtual = before

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                if self._is_elapsed(node.value):
                    self._took.add(target.id)
                if self._is_soon(node.value):
                    self._ends.add(target.id)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if name.endswith(".append") and any(map(self._is_elapsed, node.args)):
            self._took.add(name.removesuffix(".append"))
        if name == "trio.fail_after" and not self._is_virtual and self._is_short(node.args[0]):
            self._note(node, "a guard this short fails where nothing hangs")
        if name.endswith("usefixtures") and "_clock" in ast.unparse(node):
            self._note(node, "pytest-trio runs a test by a clock among its arguments only")
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        for part in ast.walk(node.test):
            if isinstance(part, ast.Compare):
                sides = [part.left, *part.comparators]
                for low, sign, high in zip(sides, part.ops, sides[1:], strict=False):
                    if isinstance(sign, ast.Gt | ast.GtE):
                        low, high = high, low
                    if isinstance(sign, ast.Eq | ast.NotEq):
                        continue
                    if (self._is_elapsed(low) and not self._is_long(high)) or (
                        self._is_now(low) and ast.unparse(high) in self._ends
                    ):
                        self._note(node, "real time has no upper bound on a busy machine")
        self.generic_visit(node)

    def _note(self, node: ast.expr | ast.stmt, why: str) -> None:
        self.found.append(f"{node.lineno}: {why}")

    def _is_now(self, node: ast.AST) -> bool:
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        return name in REAL_CLOCKS or (name == "trio.current_time" and not self._is_virtual)

    def _is_elapsed(self, node: ast.AST | None) -> bool:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "min":
            return False  # of several tries one is not held up
        for part in ast.walk(node) if node is not None else ():
            name = part.id if isinstance(part, ast.Name) else getattr(part, "attr", None)
            if name in self._took and not self._is_virtual:
                return True
            is_difference = isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)
            if is_difference and any(map(self._is_now, ast.iter_child_nodes(part))):
                return True
        return False

    def _is_soon(self, node: ast.AST) -> bool:
        return (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Add)
            and self._is_now(node.left)
            and self._is_short(node.right)
        )

    def _number(self, node: ast.AST) -> float | None:
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            value = self._seconds.get(node.id)
        return value if isinstance(value, int | float) else None

    def _is_short(self, node: ast.AST) -> bool:
        number = self._number(node)
        return number is not None and number < REAL_S_MIN

    def _is_long(self, node: ast.AST) -> bool:
        number = self._number(node)
        return number is not None and number >= REAL_S_MIN


def test_no_test_fails_because_the_machine_has_much_to_do() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if MAY_BOUND_TIME.search(text):
            bounds = RealTimeBounds(ast.parse(text), text)
            found += [f"{label(path)}:{one}" for one in bounds.found]
    assert found == []


@pytest.mark.parametrize(
    ("lines", "is_refused"),
    [
        (["began = time.monotonic()", "assert time.monotonic() - began < 3.5"], True),
        (["began = time.time_ns()", "took = time.time_ns() - began", "assert 9 >= took"], True),
        (["gaps.append(time.monotonic() - began)", "assert median(gaps) <= LIMIT_S"], True),
        (["began = trio.current_time()", "assert 1 < trio.current_time() - began < 9"], True),
        (["ends = time.monotonic() + LIMIT_S", "assert time.monotonic() < ends"], True),
        (["with trio.fail_after(LIMIT_S):", "    pass"], True),
        (["pytest.mark.usefixtures('autojump_clock')"], True),
        (["began = time.monotonic()", "assert time.monotonic() - began >= 0.3"], False),
        (["assert time.time() - began < 86_400"], False),
        (["gaps.append(time.monotonic() - began)", "assert min(gaps) < LIMIT_S"], False),
        (["ends = time.monotonic() + 60", "assert time.monotonic() < ends"], False),
        (["with trio.fail_after(60):", "    pass"], False),
    ],
)
def test_an_upper_bound_on_real_time_is_refused(lines: list[str], is_refused: bool) -> None:
    body = "".join(f"    {line}\n" for line in lines)
    text = f"LIMIT_S = 5\nasync def test_a() -> None:\n{body}"
    assert bool(RealTimeBounds(ast.parse(text), text).found) is is_refused


def test_what_a_helper_measured_is_not_bounded_either() -> None:
    text = "def took() -> float:\n    return time.monotonic() - began\n"
    assert RealTimeBounds(ast.parse(text), text).found == []
    text += "def test_a() -> None:\n    assert took() < 1\n"
    assert RealTimeBounds(ast.parse(text), text).found


def test_virtual_time_may_be_bounded() -> None:
    body = "    began = trio.current_time()\n    assert trio.current_time() - began < 1\n"
    for arguments in ("autojump_clock: MockClock", "mock_clock"):
        text = f"async def test_a({arguments}) -> None:\n{body}"
        assert RealTimeBounds(ast.parse(text), text).found == []


def test_files_that_pages_name_are_there() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md")]
    folders = "|".join([*FOLDERS, "tests", "docs", "deploy"])
    missing = []
    for page in pages:
        for name in re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|md))`", page.read_text()):
            folder = name.partition("/")[0]
            if not (ROOT / name).exists() and not (ROOT / folder / "ottla" / name).exists():
                missing.append(f"{label(page)}: {name}")
    assert missing == []


def test_links_between_pages_lead_to_files() -> None:
    broken = [
        f"{label(page)}: {link}"
        for page in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("docs/**/*.md")]
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_a_page_for_users_opens_with_code() -> None:
    users, _, _ = (ROOT / "docs/index.md").read_text().partition("## Reference")
    pages = [ROOT / "docs" / name for name in re.findall(r"\]\((\w[\w-]*\.md)\)", users)]
    assert pages
    late = [
        label(page)
        for page in pages
        if not re.search(r"^(?:    \S|```)", "\n".join(page.read_text().splitlines()[:10]), re.M)
    ]
    assert late == []


def test_the_places_of_long_tests_exist() -> None:
    assert [place for place in LONG if not (ROOT / "tests" / place).exists()] == []


def test_assertions_are_on() -> None:
    assert __debug__, "production and tests run without -O"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from ottla.cli.main import run; run(['--help']);"
        "print(sorted({'trio', 'grpc', 'google', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
    assert "ottla up" in done.stdout
