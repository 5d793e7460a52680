"""The regular expressions of a table, compiled once for each version of Python.

The build step compiles them for its own version (`Table.compiled`). Another version keeps what it compiles in
`<name>.<version>.tables` at its first start, if that can be written.
"""

from __future__ import annotations

import marshal
import os
import re
import sys
from collections.abc import Mapping

from ptir_tools.core.cpython import REGEX_VERSION, regex_of, regex_parts
from ptir_tools.core.typed import Any

HERE = os.path.dirname(__file__)


def expression(pattern: str, compiled: Mapping[str, bytes]) -> re.Pattern[str]:
    """A regular expression, as it was compiled before, or compiled now."""
    version, *parts = marshal.loads(compiled[pattern]) if pattern in compiled else ((),)
    return regex_of(pattern, (*parts,)) if version == REGEX_VERSION else re.compile(pattern)


def saved(pattern: str) -> bytes:
    """What `expression` makes the regular expression of without compiling it, in this version of Python."""
    return marshal.dumps((REGEX_VERSION, *regex_parts(pattern)))


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
    return all(marshal.loads(made)[0] == REGEX_VERSION for made in list(compiled.values())[:1])


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
