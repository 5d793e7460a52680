"""What is used of CPython beyond its documentation does what is documented, in every supported version that is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

from tests.conftest import ROOT


def _pythons() -> Iterator[str]:
    yield sys.executable
    for minor in (11, 12, 13):
        found = shutil.which(f"python3.{minor}")
        if (
            found and subprocess.run([found, "--version"], capture_output=True).returncode == 0
        ):  # pyenv has commands that are none
            yield found


CHECK = r"""
import importlib.machinery, importlib.util, inspect, re, signal, sys, threading
sys.path.insert(0, sys.argv[1])
from ptir_tools.core import cpython

class Pair(tuple):
    first, second = cpython.element(0, "one"), cpython.element(1, "two")

assert (Pair((3, 4)).first, Pair((3, 4)).second) == (3, 4)
assert cpython.signal.SIGINT == signal.SIGINT and cpython.signal.default_int_handler is signal.default_int_handler
assert cpython.RLock().__class__ is threading.RLock().__class__
assert cpython.SourceFileLoader is importlib.machinery.SourceFileLoader
assert cpython.cache_from_source is importlib.util.cache_from_source
assert cpython.caller(0) is inspect.currentframe()
texts = ["", "ab", "12 ab", "0x1F", "ÄB", "a-b\nc", "aab"]
for pattern in (r"(?P<word>[a-z]+)|(?P<number>\d+)", r"(?i:a)b", r"(?>a+)b*+", r"^(?!x)\w", "[^\n]*c", r"(a)(?:b)?(?P<z>\Z)?"):
    made, plain = cpython.regex_of(pattern, cpython.regex_parts(pattern)), re.compile(pattern)
    assert (made.groupindex, made.groups, made.flags, made.pattern) == (plain.groupindex, plain.groups, plain.flags, pattern)
    for text in texts:
        a, b = made.search(text), plain.search(text)
        assert (a and (a.span(), a.groups(), a.lastgroup)) == (b and (b.span(), b.groups(), b.lastgroup)), (pattern, text)
(step, value), = cpython.parsed_regex("x")
assert (str(step), value) == ("LITERAL", ord("x"))
print("all of it")
"""


def test_what_is_not_documented_does_what_is() -> None:
    for python in {*_pythons()}:
        ran = subprocess.run([python, "-I", "-c", CHECK, str(ROOT)], capture_output=True, text=True)
        assert ran.stdout == "all of it\n", (python, ran.stderr)


def test_no_other_file_uses_what_is_not_documented() -> None:
    modules = ("_collections", "_signal", "_sre", "_thread", "_frozen_importlib", "re._")
    names = ("_getframe", "._code(", "_parse_table", "_load_from_dict")
    allowed = {ROOT / "ptir_tools/core/cpython.py", ROOT / "grammars/lark_tables.py"}
    for room in ("ptir_tools", "passes", "grammars"):
        for path in {*(ROOT / room).rglob("*.py")} - allowed:
            text = path.read_text("utf-8")
            imports = [line for line in text.splitlines() if line.lstrip().startswith(("import ", "from "))]
            assert not [name for name in names if name in text], path
            assert not [line for line in imports for module in modules if f" {module}" in line], path
