"""The cache of compiled rule lists, one file per list and Python version, so that each list is parsed once.

The key of a file is the dialect, the text and the version of Python. It is used only when the rule compiler and the declarations
of its ops are unchanged. A file that cannot be read is compiled again; errors of writing are ignored.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from collections.abc import Callable, Sequence
from functools import cache
from zlib import crc32

from ptir_tools.core.dialect import Dialect
from ptir_tools.rewrite.patterns import named
from ptir_tools.rewrite.rule_pattern import Row

HERE = os.path.join(os.path.dirname(__file__), "compiled")
KEPT = 64  # files; older ones are deleted


def rows(text: str, dialect: Dialect, compile_rules: Callable[[str, Dialect], list[Row]]) -> Sequence[Row]:
    """The rows of a rule list: from its file, else compiled by `compile_rules` and written to a file."""
    path = _path(text, dialect)
    if (result := _read(path)) is None:
        result = compile_rules(text, dialect)
        if not sys.dont_write_bytecode:
            _write(path, result)
    return result


def _path(text: str, dialect: Dialect) -> str:
    return os.path.join(HERE, f"{dialect.name}-{crc32(text.encode()):08x}{len(text):x}.{sys.implementation.cache_tag}")


def _read(path: str) -> list[Row] | None:
    try:
        with open(path, "rb") as file:
            stamp, facts, saved = marshal.loads(file.read())
        if stamp == _stamp() and all(_declared(name) == fact for name, fact in facts):
            return [Row(*row) for row in saved]
    except (OSError, ValueError, TypeError, EOFError):
        pass
    return None


def _write(path: str, results: Sequence[Row]) -> None:
    """Write the file of a rule list, if possible; when there are too many, the oldest are deleted."""
    ops = {row.root for row in results} | {value for row in results for _, kind, value in row.symbols if kind == "op"}
    facts = tuple((name, _declared(name)) for name in sorted(ops))
    content = marshal.dumps((_stamp(), facts, tuple(map(tuple, results))))  # type: ignore[arg-type]
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(HERE, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
        files = sorted((os.path.join(HERE, name) for name in os.listdir(HERE)), key=os.path.getmtime)
        for old in files[:-KEPT]:
            os.remove(old)
    except OSError:
        pass


@cache
def _stamp() -> tuple[bytes, int]:
    """The other dependences of a file: Python's byte code version, and the rule compiler."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "rules.py"), "rb") as file:
            return MAGIC_NUMBER, crc32(file.read())
    except OSError:
        return MAGIC_NUMBER, 0


def _declared(name: str) -> tuple[object, ...] | None:
    """The declaration that the code of rows assumes for the op or family `name`; None when there is none."""
    try:
        return tuple((d.name, d.commutes, tuple(g.kind for g in d.groups), tuple(d.attr_index)) for d in named(name))
    except KeyError:
        return None
