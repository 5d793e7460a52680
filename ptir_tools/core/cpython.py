"""All that this package uses of CPython and its documentation does not have, or has in a module that takes long to import.

`tests/core/test_cpython.py` compares each with what is documented, in every supported version of Python that is installed.
"""

from __future__ import annotations

import sys
from _frozen_importlib_external import SourceFileLoader as SourceFileLoader
from _frozen_importlib_external import cache_from_source as cache_from_source
from _thread import RLock as RLock
from importlib import import_module

TYPE_CHECKING = False  # as in `core.typed`, which the console script need not import
if TYPE_CHECKING:
    import re
    import signal as signal
    from types import FrameType
    from typing import Any
else:
    signal = import_module("_signal")  # without its enumerations, which cost more than the console script

_sre = import_module("_sre")
element = import_module("_collections")._tuplegetter  # `element(i, doc)` is a property: item `i` of a tuple
REGEX_VERSION = (*sys.version_info[:2], _sre.MAGIC, sys.implementation.name)  # in which compiled expressions mean the same


def caller(depth: int) -> FrameType:
    """The caller's frame, `depth` calls up."""
    return sys._getframe(depth + 1)


def parsed_regex(pattern: str) -> Any:
    """The steps of a regular expression: pairs of an operation, whose text is its name, and its value."""
    return import_module("re._parser").parse(pattern)


def regex_parts(pattern: str) -> tuple[Any, ...]:
    """What `regex_of` makes the expression of without compiling it, in this version of Python. It can be marshalled."""
    parsed, compiler = parsed_regex(pattern), import_module("re._compiler")
    state = parsed.state
    names: list[str | None] = [None] * state.groups
    for name, number in state.groupdict.items():
        names[number] = name
    code = [int(x) for x in compiler._code(parsed, 0)]
    return int(compiler.compile(pattern).flags), code, state.groups - 1, dict(state.groupdict), tuple(names)


def regex_of(pattern: str, parts: tuple[Any, ...]) -> re.Pattern[str]:
    """A regular expression of its parts."""
    found: re.Pattern[str] = _sre.compile(pattern, *parts)
    return found
