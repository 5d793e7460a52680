"""Lazy imports of expensive modules such as NumPy and ml_dtypes: imported on first use."""

from __future__ import annotations

import sys
from importlib import import_module

from ptir_tools.core.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    import ml_dtypes
    import numpy as np

__all__ = ["Later", "late", "lazy", "ml_dtypes", "np", "regex", "value"]


class _Lazy:
    """A placeholder for a module until its first use. It is not in sys.modules, so other import statements do not see it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Any:
        module = import_module(self.__name__)
        self.__dict__ = module.__dict__  # from now on lookups find the module's names, equally fast
        return getattr(module, attribute)


def lazy(name: str) -> Any:
    """The module `name`, imported at its first attribute access. If it is not installed, that raises ModuleNotFoundError."""
    return sys.modules.get(name) or _Lazy(name)


if not TYPE_CHECKING:
    np, ml_dtypes = lazy("numpy"), lazy("ml_dtypes")


class _Regex:
    """A placeholder for a regular expression; each method is looked up once."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._given = pattern, flags
        self._made: re.Pattern[str] | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = _re.compile(*self._given)
        result = self.__dict__[name] = getattr(self._made, name)
        return result


_re = lazy("re")


def regex(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The regular expression, compiled when it is first used: a command uses few of those in a module."""
    return _Regex(pattern, flags)  # type: ignore[return-value]


def late(module: str, name: str) -> Callable[..., Any]:
    """The function `name` of `module`, which is imported when it is first called."""
    target = lazy(module)

    def call(*args: object, **named: object) -> Any:
        return getattr(target, name)(*args, **named)

    return call


class Later:
    """The functions of a module, which is imported when one of them is first called."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return late(self._module, name)


def value(module: str, name: str) -> Callable[[], Any]:
    """A function that returns the attribute `name` of `module`, which is imported on the first call."""
    target = lazy(module)
    return lambda: getattr(target, name)
