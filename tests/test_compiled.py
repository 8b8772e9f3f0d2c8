"""The compiled modules follow the rules of docs/compiled.md; checked without a compiler."""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[1]
HATCH = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
FOLDERS: list[str] = HATCH["dev-mode-dirs"]
_SPEC = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
assert _SPEC is not None
assert _SPEC.loader is not None
hatch_build = module_from_spec(_SPEC)
_SPEC.loader.exec_module(hatch_build)
with_final_names: Callable[[str], str] = hatch_build.with_final_names
mended: Callable[[str, list[tuple[str, str]]], str] = hatch_build.mended
library_header: Callable[[str], str] = hatch_build.library_header
MODULES: list[str] = HATCH["targets"]["wheel"]["hooks"]["custom"]["modules"]
NOT_NATIVE = {"Protocol", "NamedTuple", "Enum", "IntEnum", "IntFlag", "Flag", "TypedDict"}
REPLACED = re.compile(r"monkeypatch\.setattr\((\w+), ['\"](_?[A-Z][A-Z0-9_]*)['\"]")
SUBCLASSED = "mypyc_attr(allow_interpreted_subclasses=True)"


@cache
def sources() -> dict[str, str]:
    """Return the text of every module of ours by its name."""
    found = {}
    for folder in FOLDERS:
        for path in (ROOT / folder / "ottla").rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            found[name] = path.read_text()
    for path in (ROOT / "tests").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name] = path.read_text()
    return found


@cache
def compiled_tree(name: str) -> ast.Module:
    """Return a compiled module's tree; that of all modules would be half a gigabyte."""
    assert name in MODULES
    return ast.parse(sources()[name])


def classes(name: str) -> dict[str, ast.ClassDef]:
    return {one.name: one for one in compiled_tree(name).body if isinstance(one, ast.ClassDef)}


def base_classes(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield each class of a module with the module and the name of each of its bases."""
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                plain = base.value if isinstance(base, ast.Subscript) else base
                if isinstance(plain, ast.Name) and plain.id in imported:
                    yield node.name, *imported[plain.id]


def test_the_list_names_modules_that_are_there_in_order() -> None:
    assert sorted(MODULES) == MODULES
    assert [name for name in MODULES if name not in sources()] == []


def test_modules_of_another_level_are_compiled() -> None:
    for name in [*hatch_build.HOT_MODULES, *hatch_build.RARE_MODULES]:
        assert any(one == name or one.startswith(f"{name}.") for one in MODULES), name
    assert sorted(hatch_build.RARE_MODULES) == hatch_build.RARE_MODULES


@pytest.mark.parametrize("name", MODULES)
def test_a_compiled_module_has_nothing_that_the_compiler_refuses(name: str) -> None:
    for node in ast.walk(compiled_tree(name)):
        assert not isinstance(node, ast.TryStar), f"line {node.lineno}: except*"
        if isinstance(node, ast.AsyncFunctionDef):
            inner = [one for one in ast.walk(node) if isinstance(one, ast.Yield)]
            assert inner == [], f"line {node.lineno}: an async generator"


def test_no_interpreted_class_inherits_from_a_compiled_one_that_forbids_it() -> None:
    wrong = []
    # Others import no name of a compiled module and name a base by it.
    imports = re.compile(rf"^\s*from ({'|'.join(map(re.escape, MODULES))}) import ", re.MULTILINE)
    names = {one for module in MODULES for one in classes(module)}
    based = re.compile(r"^\s*class \w+(?:\[[^\]]*\])?\(([^:]*)", re.MULTILINE)
    renamed = re.compile(r"\b(\w+) as \w")
    for name in set(sources()) - set(MODULES):
        text = sources()[name]
        words = {word for bases in based.findall(text) for word in re.findall(r"\w+", bases)}
        if names.isdisjoint(words.union(renamed.findall(text))) or not imports.search(text):
            continue
        for derived, module, base in base_classes(ast.parse(text)):
            declared = classes(module).get(base) if module in MODULES else None
            if declared is None:
                continue
            parents = {ast.unparse(one).split("[")[0] for one in declared.bases}
            if parents & NOT_NATIVE or any(one.endswith("Error") for one in parents):
                continue
            if SUBCLASSED not in map(ast.unparse, declared.decorator_list):
                wrong.append(f"{name}.{derived}: {module}.{base} lacks @{SUBCLASSED}")
    assert wrong == []


def test_a_compiled_class_with_slots_has_no_interpreted_base() -> None:
    wrong = []
    for name in MODULES:
        for derived, module, base in base_classes(compiled_tree(name)):
            if module.startswith("ottla.") and module not in MODULES:
                node = classes(name).get(derived)
                assigned = ast.unparse(node) if node else ""
                if "__slots__" in assigned:
                    wrong.append(f"{name}.{derived}: {module}.{base} is interpreted")
    assert wrong == []


def test_no_field_of_a_named_tuple_is_annotated_object() -> None:
    # The compiler looks for the name among the module's, and the import ends with KeyError.
    wrong = []
    for name in MODULES:
        for node in ast.walk(compiled_tree(name)):
            if isinstance(node, ast.ClassDef) and any(
                _is_named(b, "NamedTuple") for b in node.bases
            ):
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                wrong += [
                    f"{name}.{node.name}" for one in fields if _is_named(one.annotation, "object")
                ]
    assert wrong == []


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@pytest.mark.parametrize("name", MODULES)
def test_one_name_for_exceptions_of_a_function_has_one_type(name: str) -> None:
    # The compiler gives a local variable one type, and the second handler would raise TypeError.
    for function in ast.walk(compiled_tree(name)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            types: dict[str, str] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    caught = ast.unparse(node.type)
                    assert types.setdefault(node.name, caught) == caught, f"line {node.lineno}"


@pytest.mark.parametrize("name", MODULES)
def test_no_compiled_coroutine_waits_while_it_handles_an_error(name: str) -> None:
    # Closed there, it takes the error that its caller handles; `finally` may raise a caller's.
    for node in ast.walk(compiled_tree(name)):
        if isinstance(node, ast.Try):
            handling = [*node.finalbody, *(one for each in node.handlers for one in each.body)]
            waits = [one.lineno for part in handling for one in ast.walk(part) if _is_wait(one)]
            assert waits == [], f"lines {waits}: wait behind the handler"
        assert not isinstance(node, ast.AsyncWith), f"line {node.lineno}: it waits at its end"


def _is_wait(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    return isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Yield | ast.YieldFrom)


def test_the_support_of_the_compiler_that_is_mended_is_the_one_we_know() -> None:
    changes = [("before", "after")]
    assert mended("it was before", changes) == "it was after"
    for other in ("it was", "before before"):
        with pytest.raises(ValueError, match="another"):
            mended(other, changes)


def test_who_replaces_a_constant_of_a_compiled_module_runs_interpreted_only() -> None:
    # Such a constant is part of the code that uses it.
    wrong = []
    for name, text in sources().items():
        if name.startswith("tests.") and "monkeypatch.setattr(" in text:
            tree = ast.parse(text)
            modules = {
                alias.asname or alias.name: f"{node.module}.{alias.name}"
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            }
            for function in ast.walk(tree):
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    marks = " ".join(map(ast.unparse, function.decorator_list))
                    wrong += [
                        f"{name}.{function.name}"
                        for module, constant in REPLACED.findall(ast.unparse(function))
                        if modules.get(module) in MODULES and "interpreted_only" not in marks
                    ]
    assert wrong == []


def test_what_a_module_assigns_once_is_final_in_the_tree_that_is_compiled() -> None:
    text = '''"""A module."""

import struct
from typing import TypeVar

T = TypeVar("T")
Bytes = bytes
LIMIT = 1 << 20
_length = struct.Struct(">i")
known: dict[int, str] = {
    1: "one",
}
count = 0
"""Of calls."""

def call() -> None:
    global count
    count += 1

if LIMIT:
    twice = 1
'''
    final = with_final_names(text)
    assert final.splitlines()[2] == "from typing import Final as _Final; import struct"
    lines = zip(text.splitlines(), final.splitlines(), strict=True)
    changed = [new for old, new in lines if old != new]
    assert changed[1:] == [
        "LIMIT: _Final = 1 << 20",
        '_length: _Final = struct.Struct(">i")',
        "known: _Final[dict[int, str]] = {",
    ]


def test_a_module_without_values_is_compiled_as_it_is() -> None:
    text = "import struct\n\nclass One:\n    size = 1\n"
    assert with_final_names(text) == text


TYPES_OF = {
    "google": "types-protobuf",
    "grpc": "types-grpcio",
    "librt": "mypy",
    "mypy_extensions": "mypy",
}
"""Packages that bring the types of what is imported under another name."""


def _imported(name: str) -> Iterator[str]:
    """Yield the modules that a module imports anywhere."""
    for node in ast.walk(ast.parse(sources()[name])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_build_installs_the_types_of_all_that_its_modules_import() -> None:
    """The compiler looks into every module that a compiled one imports, and on from there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    hook = HATCH["targets"]["wheel"]["hooks"]["custom"]
    installed = {re.split(r"[ \[<>=]", text)[0] for text in hook["requires"]}
    installed |= {re.split(r"[ \[<>=]", text)[0] for text in project["dependencies"]}
    without_types = {
        one.removesuffix(".*")
        for one in re.findall(r"\[mypy-([^\]]*)\]", hatch_build._MYPY)[0].split(",")
    }
    seen, left, foreign = set[str](), list(MODULES), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for one in _imported(name):
            if one in sources():
                left.append(one)
            elif not one.startswith("ottla.") and (top := one.partition(".")[0]) != "ottla":
                foreign.add(top)
    foreign -= sys.stdlib_module_names | without_types
    wanted = {TYPES_OF.get(one, one) for one in foreign}
    assert wanted <= installed, "requires of the build hook in pyproject.toml"


def test_only_what_the_library_declares_itself_is_hidden_from_others() -> None:
    own = "#ifndef OWN\n#include <Python.h>\n#include <CPy.h>\nextern int own;\n#endif\n"

    lines = library_header(own).splitlines()

    hidden = lines.index("#pragma GCC visibility push(hidden)")
    assert lines[:hidden] == ["#include <Python.h>", "#include <CPy.h>"]
    assert lines[hidden + 1 :] == [
        '#include "__native_ottla.h"',
        '#include "__native_internal_ottla.h"',
        "#pragma GCC visibility pop",
    ]
