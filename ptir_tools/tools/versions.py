"""What is installed: for `ptir --version -v` and for reports of faults."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ptir_tools import __version__
from ptir_tools.engines.native import library

_NEEDED = ("numpy", "ml_dtypes", "lark", "click")
_EXTRAS = {"onnx": ("onnx", "onnxruntime"), "torch": ("torch", "onnxscript"), "xla": ("jax", "jaxlib"), "lsp": ("pygls",)}


def lines() -> Iterator[str]:
    """The version (with the commit of an installation from git or of a clone), Python, machine, engines, packages of extras."""
    commit = _commit()
    yield f"ptir {__version__}{f' ({commit})' if commit else ''}"
    yield f"Python     {platform.python_version()} on {platform.system()} {platform.machine()}"
    yield f"packages   {', '.join(f'{name} {_version(name)}' for name in _NEEDED)}"
    native = library.kernels().ISA if library.available() else "not built: there was no C compiler"
    yield f"native     {native}"
    for extra, names in _EXTRAS.items():
        missing = f"not installed: pip install 'ptir-tools[{extra}]'"
        found = [f"{name} {version}" for name in names if (version := _version(name))]
        yield f"{extra:10} {', '.join(found) or missing}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    """The commit, as pip notes it; of an editable installation that of its clone."""
    try:
        origin = metadata.distribution("ptir-tools").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    record = json.loads(origin or "{}")
    if record.get("dir_info", {}).get("editable"):
        return head(Path(__file__).parents[2] / ".git")
    return str(record.get("vcs_info", {}).get("commit_id", ""))


def head(git: Path) -> str:
    """The commit that a clone has checked out; "" where `git` is no folder of one."""
    try:
        found = (git / "HEAD").read_text("utf-8").strip()
        if not (name := found.removeprefix("ref: ")) or name == found:
            return found
        if (git / name).is_file():
            return (git / name).read_text("utf-8").strip()
        packed = (git / "packed-refs").read_text("utf-8").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return ""
