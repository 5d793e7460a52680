"""Conversion of StableHLO bytecode and VHLO to text and back, by jaxlib (the extra `xla`).

Damaged bytes may crash jaxlib or make it loop for ever. So it runs in a subprocess: this module as a script.
"""

from __future__ import annotations

import os
import subprocess
import sys

import ptir_tools
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext as jaxlib
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo
else:
    jaxlib = lazy("jaxlib.mlir._mlir_libs._jax_mlir_ext")
    ir = lazy("jaxlib.mlir.ir")
    passmanager = lazy("jaxlib.mlir.passmanager")
    chlo = lazy("jaxlib.mlir.dialects.chlo")
    sdy = lazy("jaxlib.mlir.dialects.sdy")
    stablehlo = lazy("jaxlib.mlir.dialects.stablehlo")

MISSING, REFUSED = 3, 4  # exit codes of the script
SECONDS = 20  # for the start, and for each megabyte


def text_of(data: bytes, diagnostics: Diagnostics, named: str) -> str | None:
    """The StableHLO text of a module in bytecode, or in VHLO text; None after reporting an error. `named` is the input in
    messages. Raises UsageError without jaxlib."""
    result = _answer("read", data, diagnostics, named)
    return None if result is None else result.decode("utf-8")


def bytecode_of(text: str, diagnostics: Diagnostics) -> bytes:
    """The portable bytecode of a StableHLO module; empty after reporting an error. Raises UsageError without jaxlib."""
    return _answer("write", text.encode("utf-8"), diagnostics, "bytecode of StableHLO") or b""


def _answer(what: str, data: bytes, diagnostics: Diagnostics, named: str) -> bytes | None:
    """The output of the script; None after reporting an error."""
    command = [sys.executable, "-P", os.path.abspath(__file__), what]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_module_folders())}
    seconds = SECONDS * (1 + len(data) / (1 << 20))
    try:
        ran = subprocess.run(command, input=data, env=environment, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        diagnostics.error("InvalidModel", f"jaxlib cannot read this {named}: it is damaged")
        return None
    if ran.returncode == MISSING:
        raise UsageError(f"{named} needs jaxlib: pip install 'ptir-tools[xla]'")
    if ran.returncode == 0:
        return ran.stdout
    lines = [line for line in ran.stderr.decode("utf-8", "replace").splitlines() if "error:" in line]
    reason = lines[0].partition("error:")[2].strip() if lines else "it is damaged"
    diagnostics.error("InvalidModel", f"jaxlib rejects this {named}: {reason}")
    return None


def _module_folders() -> list[str]:
    """Where the script finds modules: the folders of this process but the current one, where others' files may be. The folder of
    this package is the last, because it may be the current one."""
    here = os.path.realpath(os.curdir)
    root = os.path.dirname(os.path.dirname(os.path.abspath(ptir_tools.__file__)))
    return [*(p for p in sys.path if p and os.path.realpath(p) not in (here, root)), root]


def work(what: str, data: bytes) -> bytes:
    """The text of a module for `read`, its bytecode for `write`. Raises ImportError without jaxlib, and what jaxlib raises."""
    registry = ir.DialectRegistry()
    jaxlib.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        for dialect in (stablehlo, chlo, sdy):
            dialect.register_dialect(context)
        module = ir.Module.parse(data, context)
        if what == "write":
            version = stablehlo.get_version_from_compatibility_requirement(stablehlo.StablehloCompatibilityRequirement.WEEK_12)
            return bytes(stablehlo.serialize_portable_artifact(module, version))
        stablehlo.register_stablehlo_passes()
        steps = f"vhlo-to-version{{target={stablehlo.get_current_version()}}},vhlo-legalize-to-stablehlo"
        passmanager.PassManager.parse(f"builtin.module({steps})").run(module.operation)
        return str(module).encode("utf-8")


def main(what: str) -> int:
    """Convert standard input to standard output; returns the exit code."""
    try:
        result = work(what, sys.stdin.buffer.read())
    except ImportError:
        return MISSING
    except Exception as error:  # of jaxlib, whatever it is: it is reported
        sys.stderr.write(f"{error}\n")
        return REFUSED
    sys.stdout.buffer.write(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
