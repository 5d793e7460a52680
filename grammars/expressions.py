"""The regular expressions of a table, compiled once for each version of Python.

The build step compiles them for its own version (`Table.compiled`). Another version keeps what it compiles in
`<name>.<version>.tables` at its first start, if that can be written.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import marshal
import os
import re
import re._compiler as sre_compiler  # type: ignore[import-not-found]
import re._parser as sre  # type: ignore[import-not-found]
import sys
from collections.abc import Mapping

from ptir_tools.core.typed import Any

HERE = os.path.dirname(__file__)
VERSION = (*sys.version_info[:2], _sre.MAGIC, sys.implementation.name)  # in which what is compiled means the same


def expression(pattern: str, compiled: Mapping[str, bytes]) -> re.Pattern[str]:
    """A regular expression, as it was compiled before, or compiled now."""
    version, *made = marshal.loads(compiled[pattern]) if pattern in compiled else ((),)
    if version != VERSION:
        return re.compile(pattern)
    found: re.Pattern[str] = _sre.compile(pattern, *made)
    return found


def saved(pattern: str) -> bytes:
    """What `expression` makes the regular expression of without compiling it, in this version of Python."""
    parsed = sre.parse(pattern)
    code = sre_compiler._code(parsed, 0)
    state = parsed.state
    names: list[str | None] = [None] * state.groups
    for name, number in state.groupdict.items():
        names[number] = name
    flags = int(sre_compiler.compile(pattern).flags)
    return marshal.dumps((VERSION, flags, list(map(int, code)), state.groups - 1, dict(state.groupdict), tuple(names)))


def of_this_python(name: str, compiled: dict[str, bytes]) -> dict[str, bytes]:
    """The expressions of a table as this version of Python compiles them; `compiled` where they can be kept nowhere."""
    if _is_of_this_python(compiled):
        return compiled
    path = os.path.join(HERE, f"{name}.{sys.implementation.cache_tag}.tables")
    found = _read(path)
    if found is None or found.keys() != compiled.keys() or not _is_of_this_python(found):
        if sys.dont_write_bytecode or not os.access(HERE, os.W_OK):
            return compiled
        found = {pattern: saved(pattern) for pattern in compiled}
        _write(path, marshal.dumps(found))
    return found


def _is_of_this_python(compiled: dict[str, bytes]) -> bool:
    """Whether the first one, hence all, were compiled by this version."""
    return all(marshal.loads(made)[0] == VERSION for made in list(compiled.values())[:1])


def _read(path: str) -> dict[str, bytes] | None:
    try:
        with open(path, "rb") as file:
            found: Any = marshal.loads(file.read())
        return found if isinstance(found, dict) else None
    except (OSError, ValueError, EOFError, TypeError):
        return None


def _write(path: str, content: bytes) -> None:
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        pass
