"""Build hook of the wheel: compiles the most used modules with mypyc if OTTLA_COMPILE is set.

Hatch calls `CompiledWheel` for each wheel and editable install. Without OTTLA_COMPILE=1 the hook
does nothing, and needs neither a compiler nor further packages. With it, the packages are copied
into one tree under build/compiled. The modules that pyproject.toml names are compiled there to one
shared library and one stub each. The wheel then has both these and the Python files; Python prefers
an extension module to a source file of the same name. The tree is kept, so that a later build
compiles only what has changed.

`python hatch_build.py` only builds the tree, and prints its path: with this path as PYTHONPATH, a
checkout runs its compiled modules. OTTLA_COMPILE_LEVEL is the optimization level of the C compiler
(`-O`), by default 1, and 0 or 2 for some modules; each other level has a directory of its own.
OTTLA_COMPILE_ONLY=ottla.wire,ottla.model builds only the modules of these packages, which may
import no other compiled module. mypyc still translates all modules, and reports what it refuses.
"""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
LIBRARY = "ottla"
"""Name of the mypyc group. The library of all compiled modules is `ottla__mypyc`."""
MESSAGES = "ottla.wire.messages."
NATIVE = Path("ottla/wire/native")
"""Directory of the tree with the codecs of compiled messages, one module each."""
GENERATED_PREFIX = "__native_"
OWN_HEADER = f"{GENERATED_PREFIX}{LIBRARY}.h"
INTERNAL_HEADER = f"{GENERATED_PREFIX}internal_{LIBRARY}.h"
LIBRARY_HEADER, RARE_HEADER, HOT_HEADER = "library.h", "library_rare.h", "library_plain.h"
STUB_HEADER = "stub.h"
"""Names of the headers that are included first, in files of the library and in stubs. A precompiled
header is for one level of optimization: gcc 12 ignores another level, or crashes."""
DEFAULT_LEVEL = "1"
HOT_LEVEL = "2"
HOT_MODULES = ["ottla.wire.records"]
"""Modules that are compiled with level 2 if the others have the default level, and without a
precompiled header. A scan of records would execute a hundredth more instructions."""
RARE_LEVEL = "0"
RARE_MODULES = [
    "ottla.broker.groups.classic.classic_member",
    "ottla.broker.groups.classic.membership_apis",
    "ottla.broker.groups.consumer.assigned_changes",
    "ottla.broker.groups.consumer.consumer_changes",
    "ottla.broker.groups.consumer.consumer_records",
    "ottla.broker.groups.consumer.reconcile",
    "ottla.broker.groups.offsets.offset_apis",
    "ottla.broker.logs.cold_reads",
    "ottla.model.limits",
    "ottla.model.log_events",
    "ottla.model.quotas.quota_limits",
    "ottla.model.seams",
    "ottla.model.security",
    "ottla.node.network.connection_limits",
    "ottla.node.network.guard",
    "ottla.node.network.listener",
    "ottla.node.network.request_traces",
    "ottla.storage.disk.disk_seam",
    "ottla.storage.disk.file_places",
    "ottla.storage.log.flusher",
    "ottla.storage.log.log_health",
    "ottla.storage.log.segment_files",
    "ottla.storage.producers.verification",
    "ottla.storage.segments.epoch_cache",
    "ottla.storage.segments.transaction_index",
]
"""Modules and packages that are compiled with level 0 if the others have the default level, in half
of the time. They are executed once per connection, file or rebalance, wait for a disk, or serve
OffsetFetch. Produce, Fetch, Metadata, OffsetCommit and heartbeats execute hardly any of them."""
OPTIONS = ["-fvisibility=hidden", "-fno-plt", "-finline-small-functions", "-fpartial-inlining"]
OPTIONS += ["-fno-tree-pta", "-fno-asynchronous-unwind-tables"]
"""Options of the C compiler. The first four save instructions at level 1, which compiles in two
thirds of the time of level 2. The analysis of pointers takes a twentieth of the time, and saves
less than a hundredth of any path's instructions."""
JOBS = os.cpu_count() or 1
TRANSLATE = "--translate"
"""Argument that precedes the modules whose C code is not compiled."""


class CompiledWheel(BuildHookInterface[Any]):
    """Build hook that adds the compiled modules to a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the packages that a compiled build requires: the compiler, and the imports of the
        modules."""
        if not _is_asked():
            return []
        return [*self.config["requires"], *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules, unless this is an editable install or OTTLA_COMPILE is not set."""
        if version == "editable" or not _is_asked():
            return
        tree = compile_tree()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["dependencies"] += self.config["runtime"]
        for path in [*sorted(tree.rglob("*.so")), *sorted((tree / NATIVE).glob("*.py"))]:
            build_data["force_include"][str(path)] = str(path.relative_to(tree))


def compile_tree() -> Path:
    """Copy the packages into one tree, compile their modules there, and return the tree's path."""
    level = _level()
    tag = str(sys.implementation.cache_tag)
    only = tuple(f"{name}." for name in os.environ.get("OTTLA_COMPILE_ONLY", "").split(",") if name)
    name = tag if level == DEFAULT_LEVEL else f"{tag}-O{level}"
    target = ROOT / "build/compiled" / (f"{name}-part" if only else name)
    tree = target / "tree"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = settings["targets"]["wheel"]
    compiled = set(wheel["hooks"]["custom"]["modules"])
    _copy_sources([ROOT / package for package in wheel["packages"]], tree, compiled)
    # What builds may be found by the path alone (pip's environment of a build); no other Ottla.
    found = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    found = [path for path in found if not Path(path, LIBRARY).is_dir()]
    environment = {**os.environ, "MYPYPATH": "", "PYTHONPATH": os.pathsep.join(found)}
    modules = wheel["hooks"]["custom"]["modules"]
    messages = [name for name in modules if name.startswith(MESSAGES)]
    modules = [*modules, *(f"ottla.wire.native.{_last(name)}" for name in messages)]
    built = [module for module in modules if module.startswith(only or "")]
    for stale in set(tree.rglob("*.so")) - _libraries(tree, built):
        stale.unlink()
    command = [sys.executable, str(Path(__file__)), "--write", *map(_last, messages)]
    path = os.pathsep.join([str(tree), *found])
    sources = {**environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=tree, env=sources, stdout=sys.stderr, check=True)
    rest = [module for module in modules if module not in built]
    command = [sys.executable, str(Path(__file__)), "--compile", *built, TRANSLATE, *rest]
    subprocess.run(command, cwd=tree, env=environment, stdout=sys.stderr, check=True)
    return tree


def _level() -> str:
    return os.environ.get("OTTLA_COMPILE_LEVEL", DEFAULT_LEVEL)


def _is_asked() -> bool:
    return os.environ.get("OTTLA_COMPILE", "") not in ("", "0")


def _libraries(tree: Path, modules: list[str]) -> set[Path]:
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    names = [f"{LIBRARY}__mypyc", *(module.replace(".", "/") for module in modules)]
    return {tree / f"{name}{suffix}" for name in names}


def _copy_sources(packages: list[Path], tree: Path, compiled: set[str]) -> None:
    """Copy the sources of the packages into the tree, and delete outdated files there.

    An unchanged file keeps its modification time. In compiled modules, names that are assigned once
    become final.
    """
    wanted: dict[Path, Path] = {}
    for package in packages:
        for path in package.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                wanted[tree / path.relative_to(package.parent)] = path
    present = {path for path in tree.rglob("*") if path.is_file() and path.suffix != ".so"}
    present -= set((tree / NATIVE).glob("*.py"))
    for stale in present - set(wanted):
        stale.unlink()
    for copied, path in wanted.items():
        data = path.read_bytes()
        if ".".join(copied.relative_to(tree).with_suffix("").parts) in compiled:
            data = with_final_names(data.decode()).encode()
        if not copied.exists() or copied.read_bytes() != data:
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(data)


def with_final_names(text: str) -> str:
    """Return the text of a module in which names that are assigned once are declared Final, on the
    same lines.

    Compiled code reads a final name like a C variable, and a final number becomes a constant. Any
    other name of a module is looked up in a dictionary each time.
    """
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    assigned = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    shared = {
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    }
    first_import = next((one for one in tree.body if isinstance(one, _IMPORTS)), None)
    found = 0
    for node in tree.body:
        name = _assigned_name(node)
        if name is None or name in shared or assigned.count(name) != 1:
            continue
        line = lines[node.lineno - 1]
        start = len(name)
        if isinstance(node, ast.AnnAssign):
            kind = node.annotation
            if kind.end_lineno != node.lineno or kind.end_col_offset is None:
                continue
            annotation = line[kind.col_offset : kind.end_col_offset]
            rest = line[kind.end_col_offset :]
            lines[node.lineno - 1] = f"{name}: _Final[{annotation}]{rest}"
        else:
            lines[node.lineno - 1] = f"{name}: _Final{line[start:]}"
        found += 1
    if not found or first_import is None:
        return text
    at = first_import.lineno - 1
    lines[at] = f"from typing import Final as _Final; {lines[at]}"
    return "".join(lines)


_IMPORTS = (ast.Import, ast.ImportFrom)
_VALUE_NAME = re.compile(r"_?([A-Z][A-Z0-9_]*|[a-z][a-z0-9_]*)")
_TYPES = ("TypeVar", "NewType", "ParamSpec", "TypeVarTuple", "namedtuple", "NamedTuple")


def _assigned_name(node: ast.stmt) -> str | None:
    """Return the name to which a statement of a module assigns a value. Returns None if the
    statement assigns none, or a type."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target = node.target
        if "TypeAlias" in ast.unparse(node.annotation) or "Final" in ast.unparse(node.annotation):
            return None
    else:
        return None
    value = node.value
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _TYPES:
        return None
    if not isinstance(target, ast.Name) or not _VALUE_NAME.fullmatch(target.id):
        return None
    return target.id


def _last(module: str) -> str:
    return module.rpartition(".")[2]


def _write_codecs(stems: list[str]) -> None:
    """Write the codecs of the messages that these modules define into the tree, which is the
    current directory."""
    from ottla.wire.codec_writers.codec_native import native_source
    from ottla.wire.generator import schema_files
    from ottla.wire.schema import module_name

    wanted = {
        NATIVE / f"{module_name(message)}.py": native_source(message)
        for message in schema_files()
        if module_name(message) in stems
    }
    NATIVE.mkdir(parents=True, exist_ok=True)
    for stale in set(NATIVE.glob("*.py")) - set(wanted):
        stale.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _compile(modules: list[str], translated: list[str]) -> None:
    """Compile modules of the tree, which is the current directory, beside their sources.

    The code of the modules `translated` is generated, for mypyc's errors, and not compiled. The
    analysis of the sources occupies one core. Another process builds the stubs in this time.
    """
    from mypyc.build import mypycify  # first: it decides by what is imported how to build

    generated = Path.cwd().parent / "c"
    stubs = subprocess.Popen([sys.executable, __file__, "--stubs", *modules], stdout=sys.stderr)
    try:
        library, *_ = mypycify(
            [f"{one.replace('.', '/')}.py" for one in modules],
            opt_level=_level(),
            debug_level="0",
            multi_file=True,
            group_name=LIBRARY,
            target_dir=str(generated),
            skip_cgen_input=_generated_code(modules, translated, generated),
        )
    finally:
        if stubs.wait():
            raise SystemExit(stubs.returncode)
    for name, changes in SUPPORT_CHANGES.items():
        support = generated / name
        support.write_text(mended(support.read_text(), changes))
    header = library_header((generated / OWN_HEADER).read_text())
    _write_changed(generated / LIBRARY_HEADER, header)
    _write_changed(generated / RARE_HEADER, header)
    _write_changed(generated / HOT_HEADER, header)
    _build([library], JOBS)


def _generated_code(modules: list[str], translated: list[str], generated: Path) -> tuple[Any, Any]:
    """Return the C code of modules of the tree, and the files of mypyc's library that it requires,
    as `mypycify` takes them. `generated` is the directory of the C files. Errors in the modules
    `translated` are reported, too.

    `mypycify` itself would check the body of each function that the modules could reach, those of
    other packages included, and write a cache that it never reads. The code is the same.
    """
    from mypy.errors import CompileError
    from mypy.fscache import FileSystemCache
    from mypyc.build import construct_groups, emit_messages, get_mypy_config
    from mypyc.codegen import emitmodule
    from mypyc.errors import Errors
    from mypyc.options import CompilerOptions

    configuration = generated.parent / "mypy.ini"
    configuration.write_text(_MYPY)
    arguments = ["--config-file", str(configuration), f"--cache-dir={os.devnull}"]
    arguments += [f"{one.replace('.', '/')}.py" for one in (*modules, *translated)]
    cache = FileSystemCache()
    settings = CompilerOptions(multi_file=True, target_dir=str(generated), group_name=LIBRARY)
    sources, all_sources, options = get_mypy_config(arguments, None, settings, cache)
    # The pattern matches all modules. The name of a module precedes it.
    options.per_module_options["*.*"] = {"ignore_errors": True, "preserve_asts": False}
    for source in sources:
        its = options.per_module_options[source.module]
        its.update(ignore_errors=False, preserve_asts=True)
    own = [source for source in sources if source.module in modules]
    groups = construct_groups(own, False, True, LIBRARY)
    if translated:
        rest = [source for source in sources if source.module not in modules]
        groups += construct_groups(rest, False, True, f"{LIBRARY}_translated")
    try:
        analysis = emitmodule.parse_and_typecheck(all_sources, options, settings, groups, cache)
    except CompileError as failure:
        raise SystemExit("\n".join(failure.messages)) from None
    errors = Errors(options)
    found, code, _ = emitmodule.compile_modules_to_c(
        analysis, compiler_options=settings, errors=errors, groups=groups
    )
    emit_messages(options, errors.new_messages(), 0)
    if errors.num_errors:
        raise SystemExit(1)
    required = sorted(emitmodule.collect_source_dependencies(found), key=lambda one: one.path)
    return code[:1], [(one.path, one.include_dirs, one.internal) for one in required]


def _build_stubs(modules: list[str]) -> None:
    """Build the extension of each module of the tree, which is the current directory. It only
    imports the library, and asks it for the module."""
    from mypyc.build import generate_c_extension_shim
    from setuptools import Extension

    generated = Path.cwd().parent / "c"
    generated.mkdir(parents=True, exist_ok=True)
    _write_changed(generated / STUB_HEADER, "#include <Python.h>\n")
    options = [f"-O{_level()}", "-g0"]
    stubs = [
        Extension(
            name,
            [generate_c_extension_shim(name, _last(name), str(generated), LIBRARY)],
            extra_compile_args=[*options],
        )
        for name in modules
    ]
    _build(stubs, 1)


def _build(extensions: list[Any], jobs: int) -> None:
    """Build extensions beside the sources of the tree, which is the current directory."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    target = Path.cwd().parent
    for extension in extensions:
        extension.extra_compile_args += OPTIONS
    distribution = Distribution({"name": LIBRARY, "ext_modules": extensions})
    command = build_ext(distribution)
    command.build_lib = str(Path.cwd())
    command.build_temp = str(target / "objects")
    command.ensure_finalized()
    _compile_changed_files(target / "c", jobs)
    command.run()


def library_header(own: str) -> str:
    """Return a header that is included first in each generated file of the library. `own` is the
    library's header of mypyc.

    Compiled ahead, it spares each file the parsing of headers of 1.5 MB. It declares the library's
    functions and variables invisible to other libraries: code then refers to them directly, and not
    through a table of addresses.
    """
    others = [line for line in own.splitlines() if line.startswith("#include")]
    lines = [
        *others,
        "#pragma GCC visibility push(hidden)",
        f'#include "{OWN_HEADER}"',
        f'#include "{INTERNAL_HEADER}"',
        "#pragma GCC visibility pop",
    ]
    return "\n".join(lines) + "\n"


def _write_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def mended(text: str, changes: list[tuple[str, str]]) -> str:
    """Return the text of a C file of mypyc with corrections. Raises ValueError unless each text to
    be replaced occurs exactly once."""
    for before, after in changes:
        if text.count(before) != 1:
            raise ValueError(f"this mypyc is another: its support in C lacks {before!r}")
        text = text.replace(before, after)
    return text


SUPPORT_CHANGES = {
    # What is closed may have waited while it handled an error, and takes the error being handled
    # with it.  The coroutine that closes it raises that again: None was raised, and memory lost.
    "misc_ops.c": [
        (
            "            res = PyObject_CallNoArgs(_m);\n            Py_DECREF(_m);\n",
            "            PyErr_GetExcInfo(&type, &value, &traceback);\n"
            "            res = PyObject_CallNoArgs(_m);\n"
            "            PyErr_SetExcInfo(type, value, traceback);\n"
            "            Py_DECREF(_m);\n",
        )
    ],
    "exc_ops.c": [
        (
            "    PyErr_Restore(p_type, p_value, p_traceback);\n}\n\nvoid CPyErr_SetObject",
            "    if (p_type == NULL || p_type == Py_None) {\n"
            "        Py_XDECREF(p_type);\n"
            "        Py_XDECREF(p_value);\n"
            "        Py_XDECREF(p_traceback);\n"
            '        PyErr_SetString(PyExc_RuntimeError, "the error to raise again was lost");\n'
            "        return;\n"
            "    }\n"
            "    PyErr_Restore(p_type, p_value, p_traceback);\n}\n\nvoid CPyErr_SetObject",
        )
    ],
}
"""Corrections of mypyc 2.4's C files, by file. Each is a pair of a text and its replacement."""


def _compile_changed_files(generated: Path, jobs: int) -> None:
    """Make setuptools compile `jobs` files in parallel, each with a precompiled header and only if
    the file or a header has changed. `generated` is the directory of the C files.

    By default, setuptools compiles all files of a library again, one after the other, if one of
    them has changed.
    """
    from distutils.ccompiler import CCompiler

    compiler: Any = CCompiler
    compile_one = compiler.compile
    hot, rare = _generated_files(HOT_MODULES), _generated_files(RARE_MODULES)
    has_levels = _level() == DEFAULT_LEVEL
    header_lock = Lock()

    def is_stale(made: str | Path, sources: Iterable[str | Path]) -> bool:
        newest = max(os.path.getmtime(path) for path in (__file__, *sources))
        return not os.path.exists(made) or os.path.getmtime(made) < newest

    def precompile(self: Any, header: Path, includes: list[Path], options: dict[str, Any]) -> None:
        made = header.with_name(f"{header.name}.gch")
        with header_lock:
            if is_stale(made, includes):
                paths = [f"-I{path}" for path in (*options["include_dirs"], *self.include_dirs)]
                command = [*self.compiler_so, *paths, *options["extra_postargs"]]
                # A compiler that reads the file while another writes it ends with an error.
                whole = header.with_name(f"{header.name}.{os.getpid()}")
                self.spawn([*command, "-x", "c-header", str(header), "-o", str(whole)])
                whole.replace(made)

    def compile_all(self: Any, sources: list[str], **options: Any) -> list[str]:
        objects: list[str] = self.object_filenames(sources, output_dir=options["output_dir"])
        is_library = len(sources) > 1
        includes = [generated / STUB_HEADER]
        if is_library:
            includes = list(generated.glob("*.h"))

        def compile_changed(source: str, made: str) -> None:
            if not is_stale(made, [source, *includes]):
                return
            own = dict(options)
            name = Path(source).name
            if not is_library:
                header = generated / STUB_HEADER
            elif has_levels and name.startswith(hot):
                header = generated / HOT_HEADER
                own["extra_postargs"] = [*options["extra_postargs"], f"-O{HOT_LEVEL}"]
            elif has_levels and name.startswith(rare):
                header = generated / RARE_HEADER
                own["extra_postargs"] = [*options["extra_postargs"], f"-O{RARE_LEVEL}"]
            elif name.startswith(GENERATED_PREFIX):
                header = generated / LIBRARY_HEADER
            else:  # one of mypyc's own few files, which define macros before they include anything
                compile_one(self, [source], **own)
                return
            if header.name != HOT_HEADER:
                precompile(self, header, includes, own)
            compile_one(self, [source], extra_preargs=["-include", str(header)], **own)

        pairs = zip(sources, objects, strict=True)
        longest_first = sorted(pairs, key=lambda pair: os.path.getsize(pair[0]), reverse=True)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(compile_changed, *zip(*longest_first, strict=True)))
        return objects

    compiler.compile = compile_all


def _generated_files(names: list[str]) -> tuple[str, ...]:
    """Return beginnings of the names of the C files of modules and packages."""
    files = [f"{GENERATED_PREFIX}{name.replace('.', '___')}" for name in names]
    return tuple(f"{file}{end}" for file in files for end in (".c", "___"))


_MYPY = """\
[mypy]
strict = True
explicit_package_bases = True
namespace_packages = True
mypy_path = .
[mypy-lz4.*,re2.*,snappy.*]
ignore_missing_imports = True
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        at = sys.argv.index(TRANSLATE)
        _compile(sys.argv[2:at], sys.argv[at + 1 :])
    elif sys.argv[1:2] == ["--stubs"]:
        _build_stubs(sys.argv[2:])
    elif sys.argv[1:2] == ["--write"]:
        _write_codecs(sys.argv[2:])
    else:
        print(compile_tree())
