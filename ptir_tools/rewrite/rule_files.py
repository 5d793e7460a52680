"""Compiled rule lists, one Python module per list, so that each list is parsed once.

The name of a module is made of the dialect and the text. It is used only when the rule compiler and the declarations of its ops
are unchanged. It is the same for every version of Python. Its byte code is kept as that of any module, by pip or by the first
start. A module that cannot be loaded is made again; errors of writing are ignored.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType
from zlib import crc32

from ptir_tools.core.cpython import SourceFileLoader, cache_from_source
from ptir_tools.core.dialect import Dialect
from ptir_tools.core.typed import Any
from ptir_tools.rewrite.patterns import named
from ptir_tools.rewrite.rule_pattern import Row

HERE = os.path.join(os.path.dirname(__file__), "compiled")
KEPT = 64  # modules; older ones are deleted
_NAME = "ptir_tools.rewrite.compiled"  # of all of them: they are in no package


def rows(text: str, dialect: Dialect, compile_rules: Callable[[str, Dialect], list[str]]) -> Sequence[Row]:
    """The rows of a rule list: from its module, else compiled by `compile_rules` and written to one."""
    path = os.path.join(HERE, f"{dialect.name}-{crc32(text.encode()):08x}{len(text):x}.py")
    if (result := _read(path)) is None:
        source = "# mypy: ignore-errors\nROWS = (\n" + "".join(f"    ({row}),\n" for row in compile_rules(text, dialect)) + ")\n"
        result = _made(compile(source, path, "exec", dont_inherit=True))["ROWS"]
        if not sys.dont_write_bytecode:
            _write(path, f"{source}FACTS = {_facts(result)!r}\nSTAMP = {_stamp()}\n")
    return result


def _made(code: CodeType) -> dict[str, Any]:
    """What the module with this code defines, the functions of rows as their code."""
    found: dict[str, Any] = {"inf": math.inf, "nan": math.nan}
    exec(code, found)
    found["ROWS"] = [Row(*[*row[:-2], *(function and function.__code__ for function in row[-2:])]) for row in found["ROWS"]]
    return found


def _read(path: str) -> list[Row] | None:
    try:
        code = SourceFileLoader(_NAME, path).get_code(_NAME)
        found = {} if code is None else _made(code)
        if found.get("STAMP") == _stamp() and all(_declared(name) == fact for name, fact in found["FACTS"]):
            rows: list[Row] = found["ROWS"]
            return rows
    except Exception:  # whatever is wrong with it
        pass
    return None


def _write(path: str, source: str) -> None:
    """Write the module of a rule list, if possible; when there are too many, the oldest are deleted."""
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(HERE, exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(source)
        os.replace(temporary, path)
        files = sorted((os.path.join(HERE, name) for name in os.listdir(HERE) if name.endswith(".py")), key=os.path.getmtime)
        for old in files[:-KEPT]:
            os.remove(old)
        os.remove(cache_from_source(path))  # two sources of one second and size would be taken for one
    except OSError:
        pass


def _facts(rows: Sequence[Row]) -> tuple[tuple[str, object], ...]:
    """The declarations of the ops in `rows`."""
    ops = {row.root for row in rows} | {value for row in rows for _, kind, value in row.symbols if kind == "op"}
    return tuple((name, _declared(name)) for name in sorted(ops))


@cache
def _stamp() -> int:
    """The other dependence of a module: the rule compiler."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "rules.py"), "rb") as file:
            return crc32(file.read())
    except OSError:
        return 0


def _declared(name: str) -> tuple[object, ...] | None:
    """The declaration that the code of rows assumes for the op or family `name`; None when there is none."""
    try:
        return tuple((d.name, d.commutes, tuple(g.kind for g in d.groups), tuple(d.attr_index)) for d in named(name))
    except KeyError:
        return None
