"""What the house forbids: imports against the layers, hidden imports, forgotten packages."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from ptir_tools.dialects import FORMATS, load_dialect
from tests.conftest import ROOT

# Each room may import the rooms left of it, and itself.
LAYERS = ("core", "rewrite", "grammars", "dialects", "plan", "passes", "convert", "bridges", "engines", "tools", "api", "cli")
ROOMS = {
    **{
        name: ROOT / "ptir_tools" / name
        for name in ("core", "rewrite", "dialects", "plan", "convert", "bridges", "engines", "tools", "cli")
    },
    "grammars": ROOT / "grammars",
    "passes": ROOT / "passes",
}
DIALECTS = ("ptir", "pto", "mind", "tiny")
KNOWN = {*DIALECTS, *FORMATS}
# Who else may import what only one room should know; lark is known to the readers.
ONLY = {"click": ("cli",), "rich": ("cli",), "lark": ("grammars", "dialects"), "ptir_tools._native": ("plan", "engines")}
ASKING = {"foreign.py"}  # what StableHLO's own text looks like


def _files() -> list[tuple[str, Path]]:
    listed = ((room, path) for room, folder in ROOMS.items() for path in sorted(folder.rglob("*.py")))
    found = [(room, path) for room, path in listed if path.parent.name != "compiled"]  # rule lists, which are made
    return [*found, *(("api", ROOT / "ptir_tools" / name) for name in ("api.py", "rewriting.py", "plugins.py"))]


FILES = _files()
IDS = [str(path.relative_to(ROOT)) for _, path in FILES]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def _imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, `lazy("…")` included."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy":
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def _room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "ptir_tools" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize(("room", "path"), FILES, ids=IDS)
def test_layers(room: str, path: Path) -> None:
    for module in _imports(path):
        seen = _room(module)
        assert seen is None or LAYERS.index(seen) <= LAYERS.index(room), f"{room} may not import {module}"
        for name, allowed in ONLY.items():
            assert (module.partition(".")[0] != name and module != name) or room in allowed, f"{room} may not import {module}"


def test_no_module_is_in_a_circle() -> None:
    """What only types need (under TYPE_CHECKING) counts, too: each file is understood without those that import it."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for _, path in FILES}
    modules = {re.sub(r"^(?!ptir_tools)", "ptir_tools.", name).removesuffix(".__init__"): path for name, path in modules.items()}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        nodes = [node for node in ast.walk(_parsed(path)) if isinstance(node, ast.ImportFrom)]
        named = [(f"{node.module}.{alias.name}", str(node.module)) for node in nodes for alias in node.names]
        graph[name] = {full if full in modules else module for full, module in named} - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError, with the modules


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects_do_not_see_each_other(dialect: str) -> None:
    for path in (ROOT / "ptir_tools" / "dialects" / dialect).rglob("*.py"):
        for module in _imports(path):
            other = module.removeprefix("ptir_tools.dialects.").split(".")[0] if module.startswith("ptir_tools.dialects.") else ""
            assert other not in DIALECTS or other == dialect, f"{path} imports {module}"


@pytest.mark.parametrize(("room", "path"), FILES, ids=IDS)
def test_no_import_inside_a_function(room: str, path: Path) -> None:
    for node in ast.walk(_parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            hidden = [n for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert not hidden, f"{path.name}:{node.lineno} {node.name} imports inside"


@pytest.mark.parametrize(("room", "path"), FILES, ids=IDS)
def test_files_and_public_things_say_what_they_are(room: str, path: Path) -> None:
    tree = _parsed(path)
    assert ast.get_docstring(tree), f"{path} has no docstring"
    for node in tree.body:
        named = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
        if named and "overload" not in map(ast.unparse, node.decorator_list):
            assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_op_has_a_manual(dialect: str) -> None:
    assert not [name for name, d in load_dialect(dialect).ops.items() if not d.doc.strip()]


def test_package_list_equals_the_tree() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    roots = {"ptir_tools": ROOT / "ptir_tools", "ptir_tools.grammars": ROOT / "grammars", "ptir_tools.passes": ROOT / "passes"}
    tree = {
        ".".join((name, *init.parent.relative_to(root).parts))
        for name, root in roots.items()
        for init in root.rglob("__init__.py")
    }
    assert sorted(listed) == sorted(tree)


def test_nothing_asks_which_dialect_or_format_it_is() -> None:
    """What depends on the dialect or the format is a field of its record. Found: `x.dialect.name == "pto"`."""
    named = []
    for room, path in FILES:
        if room not in ("dialects", "bridges") or path.parent == ROOT / "ptir_tools" / "dialects":
            for node in ast.walk(_parsed(path)):
                words = [c for x in (node.left, *node.comparators) for c in ast.walk(x)] if isinstance(node, ast.Compare) else ()
                if any(isinstance(c, ast.Constant) and c.value in KNOWN - {"c"} for c in words) and path.name not in ASKING:
                    named.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not named


def test_only_module_c_includes_python() -> None:
    for path in (ROOT / "ptir_tools" / "native").glob("*.[ch]"):
        assert ("Python.h" in path.read_text("utf-8")) == (path.name == "module.c")


# Where no op is known by its name. Passes of PTIR may make its ops: `OPS["ptir.custom_call"]`. Those of the other dialects are
# tables of what becomes of each op.
NAMELESS = ("core", "rewrite", "plan", "passes", "engines", "tools", "cli")
OF_OTHERS = ("mind", "tiny", "pto")


def quoted_names(tree: ast.Module, names: frozenset[str], shorts: frozenset[str], makes: bool) -> Iterator[tuple[int, str]]:
    """(line, name) of each op that is known by its full name, or by comparing `.short`; (line, table) of each table of the
    module, a name in capitals, in which `.short` is looked up."""
    made = {id(n.slice) for n in ast.walk(tree) if makes and isinstance(n, ast.Subscript) and ast.unparse(n.value) == "OPS"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in names and id(node) not in made:
            yield node.lineno, node.value
        asks = isinstance(node, (ast.Compare, ast.Subscript, ast.Call))
        if asks and any(isinstance(n, ast.Attribute) and n.attr == "short" for n in ast.iter_child_nodes(node)):
            for n in ast.walk(node):
                if isinstance(node, ast.Compare) and isinstance(n, ast.Constant) and n.value in shorts:
                    yield n.lineno, n.value
                if isinstance(n, ast.Name) and n.id.isupper() and n.id != "OPS":
                    yield n.lineno, n.id


@pytest.mark.parametrize(
    ("room", "path"),
    [(r, p) for r, p in FILES if r in NAMELESS and p.parent.name not in OF_OTHERS],
    ids=lambda x: getattr(x, "name", x),
)
def test_ops_are_asked_and_not_named(room: str, path: Path) -> None:
    """A fact about an op is a field of its declaration; no name is quoted outside its dialect, rule lists and conversions."""
    ops = [d for name in DIALECTS for d in load_dialect(name).ops.values()]
    names, shorts = frozenset(d.name for d in ops), frozenset(d.short for d in ops)
    assert not list(quoted_names(_parsed(path), names, shorts, path.parent.name == "ptir"))


def test_a_quoted_name_is_found() -> None:
    names, shorts = frozenset({"ptir.neg"}), frozenset({"neg"})
    code = 'OPS["ptir.neg"]\nx.defn.name == "ptir.neg"\nop.defn.short in ("neg", "abs")\nstep = "neg"\n'
    code += "ODD.get(op.defn.short)\n_ODD[op.defn.short]\nop.defn.short not in ODD\nODD.get(f(op.defn.short).name)\n"
    found = [(2, "ptir.neg"), (3, "neg"), (5, "ODD"), (6, "_ODD"), (7, "ODD")]
    assert sorted(quoted_names(ast.parse(code), names, shorts, True)) == found
    assert min(quoted_names(ast.parse(code), names, shorts, False)) == (1, "ptir.neg")


# Ops of PTO that are the structure of a program, which is followed by name: blocks, calls, views, addresses, waits; and the copy
# that `pto-bufferize` makes, the rows and the filled tile that `pto-legalize` makes.
STRUCTURE = {"scf.for", "scf.if", "scf.while", "func.call", "memref.subview", "tile.assign", "sync", "sync.op", "constant",
             "fifo.open", "fifo.free", "tile.push", "tile.pop"}  # fmt: skip
MADE = {
    "pto_bufferize.py": {"tile.mov.v2v"},
    "pto_legalize.py": {f"tile.{n}" for n in ("ands", "ors", "expands", "reshape", "cvt", "rowexpand", "rowmax")},
}
# Where the others are declared, spelled or drafted at random; rule lists. Conversions are not among the files asked.
NAMING = ("ops", "text", "ptoas", "generate")


def listed(tree: ast.Module, known: frozenset[str]) -> Iterator[str]:
    """The ops that a file names: as a whole string, with or without the dialect, or all words of a string of several."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            if node.value.removeprefix("pto.") in known:
                yield node.value.removeprefix("pto.")
            elif len(words) > 1 and all(f"tile.{word}" in known for word in words):
                yield node.value


def test_facts_about_tile_ops_are_in_their_declarations() -> None:
    """Found: tables of pipes, places, element types and cycles by the names of ops, next to the ops."""
    known = frozenset(d.short for d in load_dialect("pto").ops.values() if "." in d.short or d.is_constant)
    folder = ROOT / "ptir_tools" / "dialects" / "pto"
    paths = [*folder.rglob("*.py"), *(ROOT / "passes" / "pto").glob("*.py")]
    asked = [p for p in paths if p.parent.name not in NAMING and p.name != "rewrites.py"]
    named = {p.name: {*listed(_parsed(p), known)} - STRUCTURE - MADE.get(p.name, set()) for p in asked}
    assert not {name: found for name, found in named.items() if found}
    queries = STRUCTURE - {"scf.if", "constant"}  # each has its function in structure.py
    paths = [p for p in asked if p.name != "structure.py"]
    assert not [p.name for p in paths if {name for _, name in quoted_names(_parsed(p), frozenset(), queries, False)} & queries]
    table = 'PASSES = {"tile.exp": 2}\nWIDE = "add sub mov.m2l"\nTEXT = "add a tile"\n'
    assert {*listed(ast.parse(table), known)} == {"tile.exp", "add sub mov.m2l"}
