"""The choice of an engine, and the preparation of a program for it."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity, UsageError
from ptir_tools.core.dialect import Executable, Program, clone
from ptir_tools.core.ir import CALLS, Function
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import current, require_memory
from ptir_tools.core.records import replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.ptir import DIALECT as PTIR
from ptir_tools.dialects.ptir.check import missing_payloads
from ptir_tools.engines import native, reference
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.memory import widest_empty
from ptir_tools.engines.options import SPREADS, RunOptions
from ptir_tools.passes import Floats, PassContext, run_pipeline

if TYPE_CHECKING:
    from ptir_tools import convert
    from ptir_tools.engines import xla
    from ptir_tools.plan import mesh
    from ptir_tools.plan.mesh import Sharding
else:
    convert = lazy("ptir_tools.convert")
    mesh = lazy("ptir_tools.plan.mesh")
    xla = lazy("ptir_tools.engines.xla")

PIPELINE = "dce{constants=true},raise-bytes,canonicalize,fold-weights,raise-strides,raise-contractions,cse{keep-peak=false},dce"
WITHOUT_CALLS = "decompose{calls-only=true,for-engine=true}"
CONVOLUTIONS = "convolutions,fold-scales{range=true}"


def prepare(program: Program, options: RunOptions, diagnostics: Diagnostics) -> Executable:
    """`program`, whose types are static, prepared by the engine of `options`. `auto` is the fastest engine that supports the
    program; for a program that does not convert to PTIR it is the reference engine, with a note. With an observer nothing is
    optimized, so that it sees the ops as written. A dialect may have its own executor. Raises UsageError for an engine that
    cannot run the program, and LimitExceeded for a type too large for any array. Raises Rejected for missing payloads, and for a
    program whose conversion proves that it fails."""
    require_runnable(program, diagnostics)
    if options.sharding is not None:
        return _prepare_on_mesh(program, options, options.sharding, diagnostics)
    if program.dialect.executor is not None:
        return program.dialect.executor(program, program.main, options)
    program = without_dead(program, options)
    if options.engine == "reference" or (options.engine == "auto" and options.observe and program.dialect is not PTIR):
        return reference.Executable(program, program.main, options)
    if options.engine == "native" and not native.available():
        raise UsageError("engine `native` was not built: install with a C compiler, or use `numpy`")
    report = Diagnostics(program.source)
    hub = _to_ptir(program, report)
    if hub is None:
        why = _refused(report, options.engine)
        diagnostics.note("ReferenceEngine", f"run by the reference engine: {why}")
        return reference.Executable(program, program.main, options)
    ready = optimized(hub, options, diagnostics)
    return _engine(options)(ready, ready.main, options)


def _engine(options: RunOptions) -> Callable[[Program, Function, RunOptions], Executable]:
    return _ENGINES["native" if options.engine == "auto" and native.available() else options.engine]


def with_steps(program: Program, options: RunOptions) -> numpy_engine.Executable:
    """An optimized program of PTIR, whose types are static, prepared by an engine that plans its memory (`CHECKED`, `auto`)."""
    made = _engine(options)(program, program.main, options)
    assert isinstance(made, numpy_engine.Executable)
    return made


def _to_ptir(program: Program, report: Diagnostics) -> Program | None:
    """The program, translated to PTIR if needed; None after a report of what cannot be translated."""
    return program if program.dialect is PTIR else convert.translate(program, convert.HUB, report)


def _refused(report: Diagnostics, engine: str) -> str:
    """The reason why a program cannot be converted to PTIR. Raises Rejected and UsageError unless `engine` is `auto`."""
    errors = [d for d in report if d.severity is Severity.ERROR]
    why = errors[0].message if errors else "it does not convert to ptir"
    if engine != "auto":
        if failing := [d for d in errors if d.code != convert.NOT_TRANSLATABLE]:  # a run would raise this error
            raise Rejected(failing)
        raise UsageError(f"engine `{engine}` cannot run this program: {why}")
    return why


def _prepare_on_mesh(program: Program, options: RunOptions, sharding: Sharding, diagnostics: Diagnostics) -> Executable:
    """`program` prepared for several devices, with its ops as written, because shardings name values. Raises like `prepare`."""
    if program.dialect.executor is not None:
        raise UsageError(f"a {program.dialect.name} program runs on one core: it has no mesh")
    wanted = mesh.placed(program, sharding, diagnostics)
    if diagnostics.errors:
        raise Rejected(diagnostics.sorted())
    places = mesh.placing(program, wanted)
    report = Diagnostics(program.source)
    hub = _to_ptir(without_dead(program, options), report)
    if hub is None:
        _refused(report, SPREADS)
        raise ValueError("no program and no reason")
    return xla.Executable(hub, hub.main, options, places)


def require_runnable(program: Program, diagnostics: Diagnostics) -> None:
    """Raise LimitExceeded for a type too large for any array, Rejected for missing payloads."""
    require_memory(widest_empty(program))
    if missing_payloads(program, diagnostics):
        raise Rejected(diagnostics.sorted())


def without_dead(program: Program, options: RunOptions) -> Program:
    """A copy of `program` without dead ops, whose errors no engine reports; `program` itself if an observer needs its ops."""
    if options.observe is not None:
        return program
    alive = clone(program)
    run_pipeline(alive, "dce", PassContext(verify_each=False))
    return alive


def optimized(program: Program, options: RunOptions, diagnostics: Diagnostics) -> Program:
    """`program`, canonicalized in place, unless an observer needs its ops. Errors in passes are reported."""
    if options.observe is not None:
        return program
    floats = Floats.STRICT if options.strict_fp else Floats.DEFAULT
    context = replace(options.passes or PassContext(), floats=floats, limits=current(), verify_each=False)
    context.diagnostics = Diagnostics(program.source)
    run_pipeline(program, PIPELINE if options.strict_fp else _pipeline(program), context)
    for finding in context.diagnostics:
        if finding.code == "BrokenRule":
            diagnostics.add(finding)
    return program


def _pipeline(program: Program) -> str:
    """The passes for `program`: convolutions are made ready, with scales in their weights, and custom calls are decomposed."""
    present = {op.defn for block in program.blocks() for op in block.body}
    convolves = any(d.name in PTIR.pipelines["network"].suits for d in present)
    calls = convolves or any(d.traits & CALLS for d in present)
    return ",".join([*([CONVOLUTIONS] if convolves else []), *([WITHOUT_CALLS] if calls else []), PIPELINE])


_ENGINES: dict[str, Callable[[Program, Function, RunOptions], Executable]] = {
    "auto": numpy_engine.Executable,
    "numpy": numpy_engine.Executable,
    "native": native.Executable,
    "xla": lambda program, function, options: xla.Executable(program, function, options),
}
