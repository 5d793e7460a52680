"""What users add: passes, rules, kernels of custom calls, conversions, dialects. See docs/plugins.md.

A plug-in is a Python file that `--load FILE.py` (or `ptir_tools.load`) runs, or a module that an installed package names as an
entry point of the group `ptir_tools.plugins`. It calls the functions here, at its top level.
"""

from __future__ import annotations

import errno
import os
import sys
from types import ModuleType

from ptir_tools.core.diagnostics import PLUGIN_FILES, UsageError, is_plugin
from ptir_tools.core.lazy import late, lazy
from ptir_tools.core.typed import TYPE_CHECKING

__all__ = ["add_conversion", "add_dialect", "add_kernel", "add_pass", "add_rules", "load", "load_installed", "place"]

GROUP = "ptir_tools.plugins"

add_conversion = late("ptir_tools.convert", "register_conversion_target")
add_dialect = late("ptir_tools.dialects", "register")
add_kernel = late("ptir_tools.dialects.ptir.kernels.targets", "register")
add_pass = late("ptir_tools.passes", "register")

if TYPE_CHECKING:
    import traceback
    from importlib import metadata, util

    from ptir_tools import dialects
    from ptir_tools.rewrite import additions
    from ptir_tools.rewrite.patterns import Pattern
else:
    additions = lazy("ptir_tools.rewrite.additions")
    dialects = lazy("ptir_tools.dialects")
    metadata = lazy("importlib.metadata")
    traceback = lazy("traceback")
    util = lazy("importlib.util")

_loaded: dict[str, ModuleType] = {}
_installed: list[str] = []  # the folders of sys.path that were searched


def add_rules(dialect: str, *patterns: Pattern) -> None:
    """Add `patterns` to the first pass of the default pipeline of `dialect`.

    Raises KeyError for a dialect that there is not, ValueError for a rule whose root is not an op.
    """
    dialects.load_dialect(dialect)
    additions.add_rules(dialect, *patterns)


def load(path: str | os.PathLike[str]) -> ModuleType:
    """Run the plug-in at `path`, a file or the folder of a package, once; its module. Raises OSError, and UsageError
    that names the line."""
    shown, full = os.fspath(path), os.path.realpath(path)
    if os.path.isdir(full):
        full = os.path.join(full, "__init__.py")
    if (known := _loaded.get(full)) is not None:
        return known
    stem = os.path.basename(os.path.dirname(full) if full.endswith("__init__.py") else full).removesuffix(".py")
    name = f"ptir_plugin_{len(_loaded)}_{stem}"
    spec = util.spec_from_file_location(name, full)
    if not os.path.isfile(full):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
    if spec is None or spec.loader is None:
        raise UsageError(f"--load {shown}: this is no Python file: its name ends in .py")
    module = sys.modules[name] = _loaded[full] = util.module_from_spec(spec)
    PLUGIN_FILES.append(_files_of(full))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        at = place(error) or _syntax(error) or shown
        del sys.modules[name], _loaded[full]
        raise UsageError(f"{at}: {type(error).__name__}: {error}") from error
    return module


def _files_of(full: str) -> str:
    """The plug-in's file, or the folder of its package."""
    return os.path.dirname(full) + os.sep if full.endswith("__init__.py") else full


def _syntax(error: Exception) -> str:
    return f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""


def place(error: BaseException) -> str | None:
    """`file:line` of the innermost line of a plug-in that an error came through, or None."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if is_plugin(f.filename)]
    return f"{inside[-1].filename}:{inside[-1].lineno}" if inside else None


def load_installed() -> None:
    """Load what installed packages name as entry points. Where none does, this costs one look at their lists of them.

    Raises UsageError for one that fails.
    """
    paths = [p for p in sys.path if p not in _installed and os.path.isdir(p)]
    _installed.extend(paths)
    if not any(map(_names_plugins, paths)):
        return
    for entry in metadata.entry_points(group=GROUP):
        try:
            module = entry.load()
        except Exception as error:
            raise UsageError(f"plug-in {entry.name} ({entry.value}): {type(error).__name__}: {error}") from error
        if isinstance(module, ModuleType) and module.__file__:
            full = os.path.realpath(module.__file__)
            _loaded[full] = module
            PLUGIN_FILES.append(_files_of(full))


def _names_plugins(folder: str) -> bool:
    for entry in os.scandir(folder):
        if entry.name.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(entry.path, "entry_points.txt"), "rb", buffering=0) as file:
                    if f"[{GROUP}]".encode() in file.read():
                        return True
            except OSError:
                continue
    return False
